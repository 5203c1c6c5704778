// The visible part of a page's packed keys or values as bytes, with its scales: the same form for
// all types, so that attention is written once. Internal linkage.
#pragma once
#include "kv_packed_store.h"
#include "page_scratch.h"
#include "page_softmax.h"

namespace {

// Keys as [panel][dim / 4][16][4] levels plus 128.
struct PackedKeys {
  const uint8_t* numbers;  // of the first panel
  size_t panel_apart;      // bytes from a panel's numbers to the next one's
  const uint8_t* scales;   // of the first panel, f16
  size_t scales_apart;     // bytes likewise
  int block_apart;         // scales from a block to the next one; 0: one for all
  int minimum_apart;       // scales from a block's to its minimum; 0: there is none

  const uint8_t* panel(int index) const { return numbers + index * panel_apart; }
  const uint16_t* scale(int panel, int block) const {
    return (const uint16_t*)(scales + panel * scales_apart) + block * block_apart;
  }
};

// Values as [column][32 vectors][32][2] levels plus 128.
struct PackedValues {
  const uint8_t* numbers;
  const uint16_t* scales;  // (64) of the first column
  int column_apart;        // scales from a column to the next one; 0: one for all
  int minimum_apart;       // as above

  const uint8_t* column(int index) const { return numbers + size_t(index) * kColumnCodes; }
  const uint16_t* scale(int column) const { return scales + column * column_apart; }
};

// Returns the view of the panels that have visible positions; those of a type with fewer bits than
// eight are unpacked to the thread's scratch memory.
template <class Type>
PackedKeys view_keys(const PageAttention& a, Visible range) {
  constexpr PackedFormat format = format_of(Type::kType);
  const int dim = a.key_dim, blocks = dim / kKvBlock;
  const size_t apart = panel_bytes(Type::kType, dim);
  PackedKeys view{a.keys,
                  apart,
                  a.keys + panel_codes(Type::kType, dim),
                  apart,
                  format.has_row_scale ? 0 : kPanel,
                  format.has_minimum ? blocks * kPanel : 0};
  if constexpr (Type::kBits < 8) {
    view.panel_apart = size_t(kPanel) * dim;
    uint8_t* numbers = page_scratch(view.panel_apart * (kPage / kPanel));
    for (int p = range.begin / kPanel; p * kPanel < range.end; p++)
      unpack_groups<Type>(a.keys + p * apart, blocks, numbers + p * view.panel_apart);
    view.numbers = numbers;
  }
  return view;
}

// Does the same with values, in halves of 32 positions.
template <class Type>
PackedValues view_values(const PageAttention& a, Visible range) {
  constexpr PackedFormat format = format_of(Type::kType);
  const int dim = a.value_dim, columns = dim / kKvBlock;
  PackedValues view{a.values, value_scales(Type::kType, (uint8_t*)a.values, dim),
                    format.has_row_scale ? 0 : kPage, format.has_minimum ? columns * kPage : 0};
  if constexpr (Type::kBits < 8) {
    uint8_t* numbers = page_scratch(size_t(kPage) * dim);
    const int begin = range.begin / kKvBlock * 2, count = (range.end + 31) / kKvBlock * 2 - begin;
    for (int c = 0; c < columns; c++) {
      const int first = c * kColumnGroups + begin;
      unpack_groups<Type>(a.values + first * group_bytes(Type::kBits), count,
                          numbers + first * kGroupCodes);
    }
    view.numbers = numbers;
  }
  return view;
}

}  // namespace
