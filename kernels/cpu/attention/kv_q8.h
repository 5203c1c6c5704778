// Keys and values of a page as q8_0 (kv_pages.h). Internal linkage: compiled with different target
// flags.
#pragma once
#include "kv_pages.h"
#include "quant/quantise.h"
#include "vector/simd.h"

namespace {
using namespace sharpi;

constexpr int kQuad = 4;        // numbers of a key that lie side by side
constexpr int kPairApart = 16;  // positions between two values that lie side by side
constexpr int kColumnCodes = kPage * kKvBlock, kColumnBytes = kColumnCodes + 2 * kPage;

inline size_t panel_bytes_q8(int key_dim) {
  return size_t(kPanel) * (key_dim + key_dim / kKvBlock * 2);
}
inline const uint16_t* panel_scales(const uint8_t* panel, int key_dim) {
  return (const uint16_t*)(panel + size_t(kPanel) * key_dim);
}
inline const uint16_t* column_scales(const uint8_t* column) {
  return (const uint16_t*)(column + kColumnCodes);
}

// Returns the offset of a position's first value in a column; its next value is two bytes further.
inline int value_at(int position) {
  const int half = position / kKvBlock, within = position % kKvBlock;
  return (half * kPairApart + within % kPairApart) * 2 * kKvBlock + within / kPairApart;
}

void store_key_q8(const float* key, int dim, int at, uint8_t* keys) {
  uint8_t* panel = keys + at / kPanel * panel_bytes_q8(dim);
  uint16_t* scales = (uint16_t*)panel_scales(panel, dim);
  const int i = at % kPanel;
  for (int d = 0; d < dim; d += kKvBlock) {
    int8_t q[kKvBlock];
    float scale;
    quantise_part(key + d, q, scale);
    for (int8_t& code : q) code ^= int8_t(0x80);
    for (int j = 0; j < kKvBlock; j += kQuad)
      memcpy(panel + (d + j) * kPanel + i * kQuad, q + j, kQuad);
    scales[d / kKvBlock * kPanel + i] = float_to_half(scale);
  }
}

void store_value_q8(const float* value, int dim, int at, uint8_t* values) {
  for (int d = 0; d < dim; d += kKvBlock) {
    uint8_t* column = values + size_t(d / kKvBlock) * kColumnBytes;
    int8_t q[kKvBlock];
    float scale;
    quantise_part(value + d, q, scale);
    for (int j = 0; j < kKvBlock; j++) column[value_at(at) + 2 * j] = uint8_t(q[j]);
    ((uint16_t*)column_scales(column))[at] = float_to_half(scale);
  }
}

// Extracts number `j` of each of 16 quads of a key.
inline F32x16 numbers_of_quads(const uint8_t* quads, int j) {
  return each_part([=](int i) {
    OwnInts words;
    memcpy(&words, quads + i * sizeof words, sizeof words);
    return __builtin_convertvector((words >> 8 * j & 255) - 128, Own);
  });
}

// Unpacks the keys of panels [begin, end) to f16, in the layout of the f16 cache.
inline void unpack_keys_q8(const uint8_t* keys, int dim, int begin, int end, uint16_t* out) {
  for (int p = begin; p < end; p++) {
    const uint8_t* panel = keys + p * panel_bytes_q8(dim);
    for (int d = 0; d < dim; d += kQuad) {
      const uint8_t* quads = panel + size_t(d) * kPanel;
      const F32x16 scale = load_half(panel_scales(panel, dim) + d / kKvBlock * kPanel);
      for (int j = 0; j < kQuad; j++)
        store_half(out + (size_t(p) * dim + d + j) * kPanel, numbers_of_quads(quads, j) * scale);
    }
  }
}

// Extracts one of the two values of each of 16 pairs.
inline F32x16 values_of_pairs(const uint8_t* pairs, int which) {
  typedef int16_t Words __attribute__((vector_size(kOwnLanes * sizeof(int16_t))));
  return each_part([=](int i) {
    Words words;
    memcpy(&words, pairs + i * sizeof words, sizeof words);
    return __builtin_convertvector((which ? words : words << 8) >> 8, Own);
  });
}

// Unpacks the values of positions [begin, end) to f16, likewise; dim: a multiple of 32.
inline void unpack_values_q8(const uint8_t* values, int dim, int begin, int end, uint16_t* out) {
  for (int d = 0; d < dim; d += kKvBlock) {
    const uint8_t* column = values + size_t(d / kKvBlock) * kColumnBytes;
    float scales[kPage];
    for (int p = 0; p < kPage; p += kLanes) store(scales + p, load_half(column_scales(column) + p));
    for (int p = begin; p < end; p++) {
      const uint8_t* pairs = column + value_at(p) / 2 * 2;
      for (int j = 0; j < kKvBlock; j += kLanes)
        store_half(out + size_t(p) * dim + d + j,
                   values_of_pairs(pairs + 2 * j, value_at(p) % 2) * scales[p]);
    }
  }
}

}  // namespace
