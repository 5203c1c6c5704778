// The GPU's clock, which measures waits.
#pragma once
#include "types.cuh"

namespace sharpi {

// Returns nanoseconds since an arbitrary moment, the same one for all kernels. GPUs step it every
// 32 to 1,024 ns.
__device__ __forceinline__ int64_t nanoseconds() {
#ifdef CUDA_ON_CPU
  return emulator_nanoseconds();
#else
  int64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
#endif
}

}  // namespace sharpi
