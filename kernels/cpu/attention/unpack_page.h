// Unpacks a page's packed keys and values to the numbers that products read (packed_numbers.h).
// Internal linkage: compiled with different target flags.
#pragma once
#include "kv_packed_store.h"
#include "packed_numbers.h"
#include "vector/simd.h"

namespace {

// Types that products of integers take apart as they read them: half of each byte is a number.
template <class Type>
constexpr bool kStaysPacked = Type::kBits == 4 && Type::kHasEvenLevels;

inline const uint8_t* panel_of(const PackedKeys& k, int panel) {
  return k.numbers + panel * k.panel_apart;
}
inline const uint16_t* scale_of(const PackedKeys& k, int panel, int block) {
  return (const uint16_t*)(k.scales + panel * k.scales_apart) + block * k.block_apart;
}
inline const uint16_t* scale_of(const PackedValues& v, int column) {
  return v.scales + column * v.column_apart;
}

// Makes the view of the panels that have visible positions. Those of a type with fewer bits than
// eight are unpacked to `memory`, unless they stay packed. They never do with values within keys.
template <class Type, bool kStays = false>
void unpack_keys(const KvPage& page, Visible range, uint8_t* memory, PackedKeys& view) {
  constexpr PackedFormat format = format_of(Type::kType);
  const int dim = page.key_dim, blocks = dim / kKvBlock;
  const size_t apart = panel_bytes(Type::kType, dim);
  view = {page.keys,
          apart,
          page.keys + panel_codes(Type::kType, dim),
          apart,
          format.has_row_scale ? 0 : kPanel,
          format.has_minimum ? blocks * kPanel : 0,
          Type::kZero};
  if (Type::kBits < 8 && !(kStays && page.values)) {
    view.panel_apart = size_t(kPanel) * dim;
    for (int p = range.begin / kPanel; p * kPanel < range.end; p++)
      unpack_groups<Type>(page.keys + p * apart, blocks, memory + p * view.panel_apart);
    view.numbers = memory;
  }
}

template <class Type>
PackedValues view_values(const KvPage& page) {
  constexpr PackedFormat format = format_of(Type::kType);
  const int dim = page.value_dim;
  return {.numbers = page.values,
          .scales = value_scales(Type::kType, (uint8_t*)page.values, dim),
          .column_apart = format.has_row_scale ? 0 : kPage,
          .minimum_apart = format.has_minimum ? dim / kKvBlock * kPage : 0,
          .zero = Type::kZero,
          .range = {},
          .columns = nullptr};
}

// Does the same with values. Each vector has some of all positions.
template <class Type, bool kStays = false>
void unpack_values(const KvPage& page, Visible, uint8_t* memory, PackedValues& view) {
  if (!page.values) return;
  view = view_values<Type>(page);
  if constexpr (Type::kBits < 8 && !kStays) {
    unpack_groups<Type>(page.values, page.value_dim / kKvBlock * kColumnGroups, memory);
    view.numbers = memory;
  }
}

}  // namespace
