// Decodes any quantised type, 256 values at a time: scalar, the plain definition of every format,
// and the implementation of types without a fast path.
#pragma once
#include "block_decode_few_bits.h"
#include "block_decode_iq.h"
#include "block_decode_k.h"
#include "block_decode_of_32.h"
#include "matmul/matmul.h"

namespace {

template <class Block>
inline bool decode_one(const uint8_t* block, RowBlock& out) {
  decode(block_at<Block>(block), out);
  return true;
}
// Blocks of 64 or 128 values; decode() takes the index of the group of 16 at which one begins.
template <class Block, int kValues>
inline bool decode_some(const uint8_t* blocks, int count, RowBlock& out) {
  for (int i = 0; i < count; i += kValues, blocks += sizeof(Block))
    decode(block_at<Block>(blocks), i / 16, out);
  return true;
}

// Decodes the `count` (up to 256) values of one row that start at `blocks`. Returns false for a
// type without blocks.
inline bool decode_row_block(QuantType type, const uint8_t* blocks, int count, RowBlock& out) {
  if (count < 256) out = {};
  switch (type) {
    case QuantType::Q2_K: return decode_one<BlockQ2_K>(blocks, out);
    case QuantType::Q3_K: return decode_one<BlockQ3_K>(blocks, out);
    case QuantType::Q4_K: return decode_one<BlockQ4_K>(blocks, out);
    case QuantType::Q5_K: return decode_one<BlockQ5_K>(blocks, out);
    case QuantType::Q6_K: return decode_one<BlockQ6_K>(blocks, out);
    case QuantType::IQ4_XS: return decode_one<BlockIQ4_XS>(blocks, out);
    case QuantType::IQ2_XXS: return decode_one<BlockIQ2_XXS>(blocks, out);
    case QuantType::IQ2_XS: return decode_one<BlockIQ2_XS>(blocks, out);
    case QuantType::IQ2_S: return decode_one<BlockIQ2_S>(blocks, out);
    case QuantType::IQ3_XXS: return decode_one<BlockIQ3_XXS>(blocks, out);
    case QuantType::IQ3_S: return decode_one<BlockIQ3_S>(blocks, out);
    case QuantType::IQ1_S: return decode_one<BlockIQ1_S>(blocks, out);
    case QuantType::IQ1_M: return decode_one<BlockIQ1_M>(blocks, out);
    case QuantType::TQ1_0: return decode_one<BlockTQ1_0>(blocks, out);
    case QuantType::TQ2_0: return decode_one<BlockTQ2_0>(blocks, out);
    case QuantType::NVFP4: return decode_some<BlockNVFP4, 64>(blocks, count, out);
    case QuantType::Q1_0: return decode_some<BlockQ1_0, 128>(blocks, count, out);
    case QuantType::Q2_0: return decode_some<BlockQ2_0, 64>(blocks, count, out);
    default: return decode_blocks_of_32(type, blocks, count / 32, out);
  }
}

inline float brain_to_float(uint16_t b) {
  const uint32_t bits = uint32_t(b) << 16;
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

// Returns one value of a float type.
inline float float_at(QuantType type, const uint8_t* row, int i) {
  uint16_t half;
  float x;
  if (type == QuantType::F32) return memcpy(&x, row + 4 * size_t(i), 4), x;
  memcpy(&half, row + 2 * size_t(i), 2);
  return type == QuantType::F16 ? half_to_float(half) : brain_to_float(half);
}

// Dequantises values [first, first + count) of a row to float32; first is a multiple of 256, count
// at most 256.
inline void dequantise_part(QuantType type, const uint8_t* row, int first, int count, float* out) {
  if (reads_floats(type, Precision::Int8)) {
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
