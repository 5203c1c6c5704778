// Sums over a block and maxima over 32 lanes. A sum adds in an order that depends only on the
// block size.
#pragma once
#include "types.cuh"

namespace sharpi {

__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }

// Returns the sum over all threads of a block of whole warps. `parts`: 32 floats of shared memory,
// which may be used again after the next barrier.
__device__ __forceinline__ float sum_block(float x, float* parts) {
  x = sum_lanes(x);
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = x;
  __syncthreads();
  const int lane = threadIdx.x % kWarp;
  return sum_lanes(lane < int(blockDim.x) / kWarp ? parts[lane] : 0.f);
}

__device__ __forceinline__ float max_lanes(float x) {
#ifdef CUDA_ON_CPU_UNCHECKED
  return emulator_max_lanes(x);
#else
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    x = fmaxf(x, __shfl_xor_sync(kFullWarp, x, offset));
  return x;
#endif
}

__device__ __forceinline__ int max_lanes(int x) {
#ifdef CUDA_ON_CPU_UNCHECKED
  return emulator_max_lanes(x);
#else
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    x = max(x, __shfl_xor_sync(kFullWarp, x, offset));
  return x;
#endif
}

}  // namespace sharpi
