// One matrix of a product, out = residual + scale * (factor * W x + bias), computed by the blocks
// that cover it.
#pragma once
#include "dot.cuh"

namespace sharpi {

struct Part {
  const uint8_t* weights;
  const float* bias;
  float* out;  // (tokens, rows)
  int rows;
  float factor;  // scale of the dequantised weights
};

// Returns the part that a block belongs to, and makes `block` its number within the part. A block
// has 2^tile_bits rows.
__device__ __forceinline__ Part part_of(const Part& a, const Part& b, const Part& c, int tile_bits,
                                        int& block) {
  const int last = (1 << tile_bits) - 1;
  const int blocks_of_a = (a.rows + last) >> tile_bits;
  if (block < blocks_of_a) return a;
  block -= blocks_of_a;
  const int blocks_of_b = (b.rows + last) >> tile_bits;
  if (block < blocks_of_b) return b;
  block -= blocks_of_b;
  return c;
}

struct Added {
  const float* residual;  // (tokens, rows), or null
  float scale;
};

__device__ __forceinline__ void store(const Part& part, const Added& added, int token, int row,
                                      float product) {
  const size_t at = size_t(token) * part.rows + row;
  product = __fmul_rn(part.factor, product);
  const float value = part.bias ? __fadd_rn(product, part.bias[row]) : product;
  part.out[at] = added.residual ? __fmaf_rn(added.scale, value, added.residual[at])
                                : __fmul_rn(added.scale, value);
}

// Computes the rows of block `block` of a part, for kTokens tokens from the grid's y on.
template <class Dot, int kTokens>
__device__ __forceinline__ void multiply_part(const Activations& x, const Part& part, int block,
                                              const Added& added, int tokens, int lane_bits) {
  constexpr int kRows = Dot::kRowsAtOnce;
  const LaneGroup at = lane_group(lane_bits);
  const int first = (block * at.groups + at.group) * kRows;
  const uint8_t* rows[kRows];
#pragma unroll
  for (int r = 0; r < kRows; r++)
    rows[r] = part.weights + size_t(min(first + r, part.rows - 1)) * Dot::row_bytes(x.columns);
  const int begin = int(blockIdx.y) * kTokens, count = min(kTokens, tokens - begin);
  int token[kTokens];
#pragma unroll
  for (int t = 0; t < kTokens; t++) token[t] = begin + t;
  float sum[kTokens][kRows];
  dot_rows<Dot>(at, rows, x, token, count, sum);
#pragma unroll
  for (int t = 0; t < kTokens; t++)
#pragma unroll
    for (int r = 0; r < kRows; r++)
      if (at.lane == 0 && t < count && first + r < part.rows)
        store(part, added, begin + t, first + r, sum[t][r]);
}

}  // namespace sharpi
