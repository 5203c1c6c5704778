// Stores keys and values of a position in packed types (kv_pages.h). Internal linkage: compiled
// with different target flags.
#pragma once
#include "kv_packed.h"
#include "vector/simd.h"

namespace {

constexpr int kQuad = 4;                   // numbers that lie side by side: dimensions of a key,
constexpr int kQuadApart = kPage / kQuad;  // or values of positions that are so far apart
constexpr int kColumnGroups = kPage * kKvBlock / kGroupCodes;

constexpr size_t panel_codes(KvType type, int dim) {
  return size_t(kPanel) * dim * format_of(type).bits / 8;
}
constexpr size_t panel_bytes(KvType type, int dim) {
  return kv_bytes(type, dim) / (kPage / kPanel);
}

// Returns the scales of a panel, or of the values of a page, which are behind the codes.
inline uint16_t* panel_scales(KvType type, uint8_t* panel, int dim) {
  return (uint16_t*)(panel + panel_codes(type, dim));
}
inline uint16_t* value_scales(KvType type, uint8_t* values, int dim) {
  return (uint16_t*)(values + size_t(kPage) * dim * format_of(type).bits / 8);
}

// Encodes a row of `dim` numbers: calls put(number, code) for each, and set(index, half) for each
// scale, then for each minimum.
template <class Type, class Put, class Set>
inline void encode_row(const float* x, int dim, Put put, Set set) {
  constexpr PackedFormat format = format_of(Type::kType);
  BlockScale scale{};
  for (int d = 0; d < dim; d += kKvBlock) {
    const int block = d / kKvBlock;
    if (!format.has_row_scale || d == 0) {
      scale = Type::measure(x + d, format.has_row_scale ? dim : kKvBlock);
      set(block, float_to_half(scale.scale));
      if (format.has_minimum) set(dim / kKvBlock + block, float_to_half(scale.minimum));
    }
    uint8_t codes[kKvBlock];
    Type::encode(x + d, scale, codes);
    for (int j = 0; j < kKvBlock; j++) put(d + j, codes[j]);
  }
}

template <class Type>
void store_packed_key(const float* key, int dim, int at, uint8_t* keys) {
  uint8_t* panel = keys + at / kPanel * panel_bytes(Type::kType, dim);
  uint16_t* scales = panel_scales(Type::kType, panel, dim) + at % kPanel;
  encode_row<Type>(
      key, dim,
      [&](int d, unsigned code) {
        put_code<Type::kBits>(panel + d / kKvBlock * group_bytes(Type::kBits), d % kKvBlock / kQuad,
                              at % kPanel * kQuad + d % kQuad, code);
      },
      [&](int index, uint16_t half) { scales[index * kPanel] = half; });
}

// Where a value is within its column: the vector, and the code in it.
struct ValuePlace {
  int vector, code;
  ValuePlace(int number, int position)
      : vector(position % kQuadApart * 2 + number / kPanel),
        code(number % kPanel * kQuad + position / kQuadApart) {}
};

template <class Type>
void store_packed_value(const float* value, int dim, int at, uint8_t* values) {
  uint16_t* scales = value_scales(Type::kType, values, dim) + at;
  encode_row<Type>(
      value, dim,
      [&](int d, unsigned code) {
        const ValuePlace place(d % kKvBlock, at);
        uint8_t* group = values + (d / kKvBlock * kColumnGroups + place.vector / kGroupVectors) *
                                      group_bytes(Type::kBits);
        put_code<Type::kBits>(group, place.vector % kGroupVectors, place.code, code);
      },
      [&](int index, uint16_t half) { scales[index * kPage] = half; });
}

}  // namespace
