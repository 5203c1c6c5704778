// Float arithmetic for slot decisions: rounded as the CPU's slot policies round, with denormals.
//
// Kernels are compiled with -ftz=true, which these instructions ignore.
#pragma once
#include "common/types.cuh"

namespace sharpi {

#ifdef CUDA_ON_CPU
__device__ __forceinline__ float mul_as_cpu(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float add_as_cpu(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ float sub_as_cpu(float a, float b) { return __fsub_rn(a, b); }
#else
#define FLOAT_AS_CPU(NAME, PTX)                                \
  __device__ __forceinline__ float NAME(float a, float b) {    \
    float y;                                                   \
    asm(PTX ".rn.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); \
    return y;                                                  \
  }
FLOAT_AS_CPU(mul_as_cpu, "mul")
FLOAT_AS_CPU(add_as_cpu, "add")
FLOAT_AS_CPU(sub_as_cpu, "sub")
#undef FLOAT_AS_CPU
#endif

// Returns an integer that sorts like x, which is never NaN; both zeros give the same one.
__device__ __forceinline__ int key_of(float x) {
  const int bits = __float_as_int(x), magnitude = bits & 0x7fffffff;
  return bits < 0 ? -magnitude : magnitude;
}

}  // namespace sharpi
