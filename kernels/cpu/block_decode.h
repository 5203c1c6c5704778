// Any quantised type, 256 values at a time, as whole numbers with a scale and an offset for each
// 16: scalar, the plain statement of every format, and what types without a fast path are computed
// from.
//
// Internal linkage throughout: the header is compiled with different target flags.
#pragma once
#include <cstring>

#include "matmul.h"
#include "quant_blocks.h"
#include "simd.h"

namespace {
using namespace sharpi;

// value[i] = scale[i / 16] * q[i] - min[i / 16]; values past the end of a row are zero.
struct RowBlock {
  int8_t q[256];
  float scale[16];
  float min[16];
};

template <class Block>
inline Block block_at(const uint8_t* p) {
  Block block;
  memcpy(&block, p, sizeof block);
  return block;
}

// q[i] = value(part, l), in parts of kLength values: loops of fixed length vectorise.
template <int kLength, class Value>
inline void fill(int8_t* q, int num_parts, Value value) {
  for (int part = 0; part < num_parts; part++)
    for (int l = 0; l < kLength; l++) q[kLength * part + l] = int8_t(value(part, l));
}

// Blocks of 32: two groups of 16 with one scale; `value(block, half, l)` is a whole number.
template <class Block, class Value>
inline void decode_32(const uint8_t* p, int count, RowBlock& out, float (*scale)(const Block&),
                      float (*min)(const Block&), Value value) {
  for (int b = 0; b < count; b++) {
    const Block block = block_at<Block>(p + b * sizeof(Block));
    fill<16>(out.q + 32 * b, 2, [&](int half, int l) { return value(block, half, l); });
    out.scale[2 * b] = out.scale[2 * b + 1] = scale(block);
    out.min[2 * b] = out.min[2 * b + 1] = min ? min(block) : 0.f;
  }
}

inline int nibble(const uint8_t* qs, int half, int l) { return qs[l] >> (4 * half) & 15; }
inline int fifth_bit(const uint8_t* qh, int half, int l) {
  return (qh[2 * half + l / 8] >> (l % 8) & 1) << 4;
}
template <class Block>
inline float half_scale(const Block& b) {
  return half_to_float(b.d);
}
template <class Block>
inline float minus_offset(const Block& b) {
  return -half_to_float(b.m);
}

// Half of 2^(e - 127), since the table holds doubled values.
inline float e8m0_half(const BlockMXFP4& b) {
  const uint32_t bits = b.e < 2 ? 0x00200000u << b.e : uint32_t(b.e - 1) << 23;
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

constexpr int8_t kIq4Values[16] = {SHARPI_IQ4_VALUES};
constexpr int8_t kE2m1Twice[16] = {SHARPI_E2M1_TWICE};

// Of blocks of 256, in 8 parts of 32 values.
inline int two_bits(const uint8_t* qs, int part, int l) {
  return qs[part / 4 * 32 + l] >> (part % 4 * 2) & 3;
}
inline void decode(const BlockQ2_K& b, RowBlock& out) {
  fill<32>(out.q, 8, [&](int part, int l) { return two_bits(b.qs, part, l); });
  for (int g = 0; g < 16; g++) {
    out.scale[g] = half_to_float(b.d) * float(b.scales[g] & 15);
    out.min[g] = half_to_float(b.dmin) * float(b.scales[g] >> 4);
  }
}

inline int q3_scale(const uint8_t* s, int g) {
  const int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4;
  return (low | (s[8 + g % 4] >> (g / 4 * 2) & 3) << 4) - 32;
}
inline void decode(const BlockQ3_K& b, RowBlock& out) {
  fill<32>(out.q, 8, [&](int part, int l) {
    return two_bits(b.qs, part, l) + ((b.hmask[l] >> part & 1) << 2) - 4;
  });
  for (int g = 0; g < 16; g++)
    out.scale[g] = half_to_float(b.d) * float(q3_scale(b.scales, g)), out.min[g] = 0;
}

// Six-bit scales and mins of Q4_K and Q5_K.
inline int k_scale(const uint8_t* s, int g) {
  return g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 6 << 4);
}
inline int k_min(const uint8_t* s, int g) {
  return g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | (s[g] >> 6 << 4);
}
template <class Block>
inline void decode_k_scales(const Block& b, RowBlock& out) {
  for (int g = 0; g < 16; g++) {
    out.scale[g] = half_to_float(b.d) * float(k_scale(b.scales, g / 2));
    out.min[g] = half_to_float(b.dmin) * float(k_min(b.scales, g / 2));
  }
}
inline int k_nibble(const uint8_t* qs, int part, int l) {
  return qs[part / 2 * 32 + l] >> (part % 2 * 4) & 15;
}
inline void decode(const BlockQ4_K& b, RowBlock& out) {
  fill<32>(out.q, 8, [&](int part, int l) { return k_nibble(b.qs, part, l); });
  decode_k_scales(b, out);
}
inline void decode(const BlockQ5_K& b, RowBlock& out) {
  fill<32>(out.q, 8,
           [&](int part, int l) { return k_nibble(b.qs, part, l) | (b.qh[l] >> part & 1) << 4; });
  decode_k_scales(b, out);
}

inline void decode(const BlockQ6_K& b, RowBlock& out) {
  fill<32>(out.q, 8, [&](int part, int l) {
    const int half = part / 4, quarter = part % 4;
    const int low = b.ql[64 * half + 32 * (quarter % 2) + l] >> (quarter / 2 * 4) & 15;
    return (low | (b.qh[32 * half + l] >> (2 * quarter) & 3) << 4) - 32;
  });
  for (int g = 0; g < 16; g++)
    out.scale[g] = half_to_float(b.d) * float(b.scales[g]), out.min[g] = 0;
}

inline void decode(const BlockIQ4_XS& b, RowBlock& out) {
  fill<16>(out.q, 16,
           [&](int half, int l) { return kIq4Values[nibble(b.qs + half / 2 * 16, half % 2, l)]; });
  for (int g = 0; g < 16; g++) {
    const int low = b.scales_l[g / 4] >> (g / 2 % 2 * 4) & 15, high = b.scales_h >> (g / 2 * 2) & 3;
    out.scale[g] = half_to_float(b.d) * float((low | high << 4) - 32);
    out.min[g] = 0;
  }
}

// The `count` (up to 256) values of one row that start at `blocks`; false for a type without
// blocks.
inline bool decode_row_block(QuantType type, const uint8_t* blocks, int count, RowBlock& out) {
  if (count < 256) out = {};
  const int n = count / 32;
  switch (type) {
    case QuantType::Q4_0:
      decode_32<BlockQ4_0>(blocks, n, out, half_scale, nullptr,
                           [](auto& b, int half, int l) { return nibble(b.qs, half, l) - 8; });
      return true;
    case QuantType::Q4_1:
      decode_32<BlockQ4_1>(blocks, n, out, half_scale, minus_offset,
                           [](auto& b, int half, int l) { return nibble(b.qs, half, l); });
      return true;
    case QuantType::Q5_0:
      decode_32<BlockQ5_0>(blocks, n, out, half_scale, nullptr, [](auto& b, int half, int l) {
        return (nibble(b.qs, half, l) | fifth_bit(b.qh, half, l)) - 16;
      });
      return true;
    case QuantType::Q5_1:
      decode_32<BlockQ5_1>(blocks, n, out, half_scale, minus_offset, [](auto& b, int half, int l) {
        return nibble(b.qs, half, l) | fifth_bit(b.qh, half, l);
      });
      return true;
    case QuantType::Q8_0:
      decode_32<BlockQ8_0>(blocks, n, out, half_scale, nullptr,
                           [](auto& b, int half, int l) { return b.qs[16 * half + l]; });
      return true;
    case QuantType::IQ4_NL:
      decode_32<BlockIQ4_NL>(blocks, n, out, half_scale, nullptr, [](auto& b, int half, int l) {
        return kIq4Values[nibble(b.qs, half, l)];
      });
      return true;
    case QuantType::MXFP4:
      decode_32<BlockMXFP4>(blocks, n, out, e8m0_half, nullptr, [](auto& b, int half, int l) {
        return kE2m1Twice[nibble(b.qs, half, l)];
      });
      return true;
    case QuantType::Q2_K:
      decode(block_at<BlockQ2_K>(blocks), out);
      return true;
    case QuantType::Q3_K:
      decode(block_at<BlockQ3_K>(blocks), out);
      return true;
    case QuantType::Q4_K:
      decode(block_at<BlockQ4_K>(blocks), out);
      return true;
    case QuantType::Q5_K:
      decode(block_at<BlockQ5_K>(blocks), out);
      return true;
    case QuantType::Q6_K:
      decode(block_at<BlockQ6_K>(blocks), out);
      return true;
    case QuantType::IQ4_XS:
      decode(block_at<BlockIQ4_XS>(blocks), out);
      return true;
    default:
      return false;
  }
}

inline float brain_to_float(uint16_t b) {
  const uint32_t bits = uint32_t(b) << 16;
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

// One value of a float type.
inline float float_at(QuantType type, const uint8_t* row, int i) {
  uint16_t half;
  float x;
  if (type == QuantType::F32) return memcpy(&x, row + 4 * size_t(i), 4), x;
  memcpy(&half, row + 2 * size_t(i), 2);
  return type == QuantType::F16 ? half_to_float(half) : brain_to_float(half);
}

// Values [first, first + count) of a row as float32; first is a multiple of 256, count at most 256.
inline void dequantise_part(QuantType type, const uint8_t* row, int first, int count, float* out) {
  if (takes_floats(type, Precision::Int8)) {
    for (int i = 0; i < count; i++) out[i] = float_at(type, row, first + i);
    return;
  }
  RowBlock block;
  decode_row_block(type, row + size_t(first) / block_values(type) * block_bytes(type), count,
                   block);
  for (int i = 0; i < count; i += 16)
    for (int l = i; l < i + 16; l++)
      out[l] = block.scale[i / 16] * float(block.q[l]) - block.min[i / 16];
}

}  // namespace
