// Activations quantised to int8, the form that quantised matmuls take.
//
// A token's row is `planes` planes of activation_plane_bytes(columns); plane 0 holds the quantised
// values, plane 1 (int16 precision) the quantised remainders. A plane of K columns is int8 q[K];
// float scale[K / 32]; int16 sum[K / 16] padded to 16 bytes: value = q * scale, and sum[g] is the
// sum of q over 16 columns. K is a multiple of 32. scale = max |x| / 127 of the 32 columns,
// rounding to nearest, ties to even; a peak under 1e-35 gives zeros.
#pragma once
#include "common/types.cuh"

namespace sharpi {

__device__ __forceinline__ size_t activation_plane_bytes(int columns) {
  return (size_t(columns) * 5 / 4 + 15) / 16 * 16;
}

struct ActivationPlane {
  const int8_t* q;
  const float* scale;
  const int16_t* sum;
};

__device__ __forceinline__ ActivationPlane activation_plane(const uint8_t* rows, int row,
                                                            int columns, int planes, int plane) {
  const uint8_t* p = rows + (size_t(row) * planes + plane) * activation_plane_bytes(columns);
  return {(const int8_t*)p, (const float*)(p + columns),
          (const int16_t*)(p + columns + columns / 8)};
}

// Rounds 32 consecutive columns, by one warp: lane i has value i. `block`: the number of blocks of
// 32 columns before these. All lanes must call it.
__device__ __forceinline__ void quantise_32(float x, uint8_t* rows, int row, int columns,
                                            int planes, int block) {
  const int lane = threadIdx.x % kWarp;
  for (int plane = 0; plane < planes; plane++) {
    int bits = __float_as_int(x) & 0x7fffffff;  // magnitudes sort like integers; a NaN is largest
    for (int offset = 16; offset > 0; offset /= 2)
      bits = max(bits, __shfl_xor_sync(kFullWarp, bits, offset));
    const float peak = __int_as_float(bits);
    const float inverse = peak < 1e-35f ? 0.f : __fdiv_rn(127.f, peak);
    const float scale = peak < 1e-35f ? 0.f : __fdiv_rn(peak, 127.f);
    const int q = __float2int_rn(x * inverse);
    int sum = q;
    for (int offset = 8; offset > 0; offset /= 2) sum += __shfl_xor_sync(kFullWarp, sum, offset);
    uint8_t* p = rows + (size_t(row) * planes + plane) * activation_plane_bytes(columns);
    ((int8_t*)p)[32 * block + lane] = int8_t(q);
    if (lane == 0) ((float*)(p + columns))[block] = scale;
    if (lane % 16 == 0)
      ((int16_t*)(p + columns + columns / 8))[2 * block + lane / 16] = int16_t(sum);
    x -= float(q) * scale;
  }
}

}  // namespace sharpi
