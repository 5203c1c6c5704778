// bf16, the upper halves of 32-bit floats, without CUDA's header, which some CuPy versions lack.
#pragma once
#include "types.cuh"

namespace sharpi {

// Rounds to nearest, ties to even; a NaN stays one.
__device__ __forceinline__ uint16_t to_brain_float(float x) {
  const uint32_t bits = __float_as_uint(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

__device__ __forceinline__ float of_brain_float(uint16_t bits) {
  return __uint_as_float(uint32_t(bits) << 16);
}

}  // namespace sharpi
