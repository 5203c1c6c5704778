// Unpacks a page's packed keys and values to the numbers that products read (packed_numbers.h).
// Internal linkage: compiled with different target flags.
#pragma once
#include "kv_packed_store.h"
#include "packed_numbers.h"
#include "vector/simd.h"

namespace {

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
// eight are unpacked to `memory`.
template <class Type>
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
  if constexpr (Type::kBits < 8) {
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
  return {.bytes = page.values,
          .words = nullptr,
          .scales = value_scales(Type::kType, (uint8_t*)page.values, dim),
          .column_apart = format.has_row_scale ? 0 : kPage,
          .minimum_apart = format.has_minimum ? dim / kKvBlock * kPage : 0,
          .zero = Type::kZero,
          .range = {},
          .columns = nullptr};
}

// Calls body(from, count) for the groups of each column that have visible positions.
template <class Body>
inline void over_groups(int dim, Visible range, Body body) {
  const int begin = range.begin / kKvBlock * 2, count = (range.end + 31) / kKvBlock * 2 - begin;
  for (int c = 0; c < dim / kKvBlock; c++) body(c * kColumnGroups + begin, count);
}

// Does the same with values, in halves of 32 positions, as bytes.
template <class Type>
void unpack_values(const KvPage& page, Visible range, uint8_t* memory, PackedValues& view) {
  if (!page.values) return;
  view = view_values<Type>(page);
  if constexpr (Type::kBits < 8) {
    over_groups(page.value_dim, range, [&](int from, int count) {
      unpack_groups<Type>(page.values + from * group_bytes(Type::kBits), count,
                          memory + from * kGroupCodes);
    });
    view.bytes = memory;
  }
}

// Computes the scales relative to the largest one of a range; those of others become 0. Magnitudes
// sort as integers, a NaN above all.
inline void set_column_scales(const uint16_t* scales, Visible range, ColumnScales& to) {
  OwnInts largest{};
  for (int i = 0; i < kPage; i += kLanes) {
    F32x16 x = load_half(scales + i);
    if (i < range.begin || i + kLanes > range.end)
      x = keep_lanes(x, range.begin - i, range.end - 1 - i, 0.f);
    store(to.relative + i, x);
    for (const Own& part : x.part) {
      OwnInts bits;
      memcpy(&bits, &part, sizeof bits);
      bits &= 0x7fffffff;
      largest = bits > largest ? bits : largest;
    }
  }
  int32_t most = 0;
  for (int l = 0; l < kOwnLanes; l++) most = std::max(most, int32_t(largest[l]));
  memcpy(&to.largest, &most, sizeof most);
  const float inverse = to.largest > 0 ? 1.f / to.largest : 0.f;
  for (int i = 0; i < kPage; i += kLanes) store(to.relative + i, load(to.relative + i) * inverse);
}

// Prefetches the group of the next page's values that is where group `g` is in this one, and its
// share of the scales.
template <class Type>
inline void fetch_group(const KvPage& page, int g) {
  constexpr size_t kScales = 2 * kPage / kColumnGroups, kBytes = group_bytes(Type::kBits);
  const uint8_t* from = page.next_values + g * (kBytes + kScales);
  for (size_t i = 0; i < kBytes + kScales; i += 64) __builtin_prefetch(from + i, 0, 2);
}

// Does the same with values, as words, and computes the scales of columns. Meanwhile the next
// page's values are prefetched.
template <class Type>
void unpack_words(const KvPage& page, Visible range, uint8_t* memory, PackedValues& view) {
  view = view_values<Type>(page);
  int16_t* words = (int16_t*)memory;
  ColumnScales* columns = (ColumnScales*)(words + size_t(kPage) * page.value_dim);
  over_groups(page.value_dim, range, [&](int from, int count) {
    alignas(64) uint8_t codes[kGroupCodes];
    for (int g = from; g < from + count; g++) {
      if (page.next_values) fetch_group<Type>(page, g);
      const uint8_t* numbers = page.values + g * group_bytes(Type::kBits);
      if constexpr (Type::kBits < 8) {
        unpack_groups<Type>(numbers, 1, codes);
        numbers = codes;
      }
      for (int i = 0; i < kGroupCodes; i++)
        words[size_t(g) * kGroupCodes + i] = int16_t(numbers[i] - Type::kZero);
    }
  });
  for (int c = 0; c * kKvBlock < page.value_dim; c++)
    if (c == 0 || view.column_apart) set_column_scales(scale_of(view, c), range, columns[c]);
  view.words = words, view.columns = columns, view.range = range;
}

}  // namespace
