// The orthonormal Hadamard transform (kernels/cpu/attention/rotate.h), which spreads a large number
// over its block, so that keys and values lose less when they are quantised. It is its own inverse,
// and keeps dot products of two transformed rows.
#pragma once
#include "common/types.cuh"

namespace sharpi {

// Transforms each block of a row in place, by one warp; dim and `block`, a power of two, are
// multiples of 32. A lane reads no other lane's numbers.
__device__ __forceinline__ void transform_row(float* row, int dim, int block) {
  const int lane = threadIdx.x % kWarp;
  const float norm = rsqrtf(float(block));
#pragma unroll 1
  for (int i = lane; i < dim; i += kWarp) {
    float x = row[i] * norm;
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) {
      const float other = __shfl_xor_sync(kFullWarp, x, step);
      x = lane & step ? other - x : x + other;
    }
    row[i] = x;
  }
#pragma unroll 1
  for (int step = kWarp; step < block; step *= 2)
#pragma unroll 1
    for (int i = lane; i < dim; i += kWarp) {
      if (i & step) continue;
      const float low = row[i], high = row[i + step];
      row[i] = low + high, row[i + step] = low - high;
    }
}

}  // namespace sharpi
