// RMS norm of one row, by the last block of a product; the result is that of the kernel rms_norm.
#pragma once
#include "common/block_sums.cuh"
#include "common/last_block.cuh"
#include "quant/activations.cuh"

namespace sharpi {

// The norm of a product's row. done: a counter of blocks, null for no norm; out, quantised: null
// where not wanted; threads: those of a block of rms_norm, on which the order of its sum depends.
struct NormTail {
  int* done;
  const float* weight;
  float* out;
  uint8_t* quantised;
  float epsilon;
  int threads, planes;
};

__device__ __forceinline__ void norm_row(const NormTail& norm, const float* row, int width) {
  __shared__ float parts[kWarp];
  const int lane = threadIdx.x % kWarp, warps = norm.threads / kWarp;
  for (int warp = threadIdx.x / kWarp; warp < warps; warp += blockDim.x / kWarp) {
    float sum = 0.f;
    for (int i = warp * kWarp + lane; i < width; i += norm.threads) sum += row[i] * row[i];
    sum = sum_lanes(sum);
    if (lane == 0) parts[warp] = sum;
  }
  __syncthreads();
  const float total = sum_lanes(lane < warps ? parts[lane] : 0.f);
  const float inverse = 1.f / sqrtf(total / width + norm.epsilon);
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    const float y = row[i] * inverse * norm.weight[i];
    if (norm.out) norm.out[i] = y;
    if (norm.quantised) quantise_32(y, norm.quantised, 0, width, norm.planes, i / 32);
  }
}

// Norms the row once all blocks of the grid have written their part of it.
__device__ __forceinline__ void end_with_norm(const NormTail& norm, const float* row, int width) {
  if (norm.done && is_last_block(norm.done, int(gridDim.x))) norm_row(norm, row, width);
}

}  // namespace sharpi

// The parameters of a norm within a kernel's list, and the norm made of them.
#define NORM_TAIL                                                                   \
  int *norm_done, const float *norm_weight, float *normed, uint8_t *norm_quantised, \
      float norm_epsilon, int norm_threads, int norm_planes
#define AS_NORM_TAIL \
  {norm_done, norm_weight, normed, norm_quantised, norm_epsilon, norm_threads, norm_planes}
