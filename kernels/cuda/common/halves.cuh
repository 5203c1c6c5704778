// Pairs of f16 in words.
#pragma once
#include "types.cuh"

namespace sharpi {

// Rounds two floats to f16, the first in the low half of the word.
__device__ __forceinline__ uint32_t two_halves(float2 v) {
  return __half_as_ushort(__float2half_rn(v.x)) | uint32_t(__half_as_ushort(__float2half_rn(v.y)))
                                                      << 16;
}

}  // namespace sharpi
