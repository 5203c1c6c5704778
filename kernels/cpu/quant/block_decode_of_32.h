// Decodes blocks of 32 with one scale: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4.
#pragma once
#include "matmul/matmul.h"
#include "matmul/row_block.h"

namespace {

// Decodes blocks of 32: two groups of 16 with one scale; `value(block, half, l)` is an integer.
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

// Returns half of 2^(e - 127), because the table holds doubled values.
inline float e8m0_half(const BlockMXFP4& b) {
  const uint32_t bits = b.e < 2 ? 0x00200000u << b.e : uint32_t(b.e - 1) << 23;
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

constexpr int8_t kIq4Values[16] = {SHARPI_IQ4_VALUES};
constexpr int8_t kE2m1Twice[16] = {SHARPI_E2M1_TWICE};

// Decodes the first 32 * n values. Returns false for a type of other blocks.
inline bool decode_blocks_of_32(QuantType type, const uint8_t* blocks, int n, RowBlock& out) {
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
    default: return false;
  }
}

}  // namespace
