// Lets the block that ends last continue with the other blocks' results, in place of another
// launch.
#pragma once
#include "types.cuh"

namespace sharpi {

// Returns true on all threads of the last of `count` blocks that call it with the same counter:
// what the others wrote before is visible then. counter: 0 before the launch, and again after it.
__device__ __forceinline__ bool is_last_block(int* counter, int count) {
  __shared__ int is_last;
  __threadfence();
  __syncthreads();
#ifdef CUDA_ON_CPU
  if (threadIdx.x == 0) emulator_arrive(counter);
#endif
  if (threadIdx.x == 0) is_last = atomicAdd(counter, 1) + 1 == count;
  __syncthreads();
  if (!is_last) return false;
  if (threadIdx.x == 0) atomicExch(counter, 0);
  __threadfence();
#ifdef CUDA_ON_CPU
  emulator_join(counter);
#endif
  return true;
}

}  // namespace sharpi
