// F32, F16 and BF16, described like the quantised types: a unit is eight adjacent values of a row.
//
// Rows hold an even number of values; only rows of a multiple of eight values begin at multiples of
// 16 bytes.
#pragma once
#include "common/types.cuh"

namespace sharpi {

struct FloatUnit {
  float values[8];
};

__device__ __forceinline__ float2 pair_of_halves(uint32_t bits) {
  return make_float2(__half2float(__ushort_as_half((unsigned short)(bits & 0xffff))),
                     __half2float(__ushort_as_half((unsigned short)(bits >> 16))));
}

__device__ __forceinline__ float2 pair_of_brain_floats(uint32_t bits) {
  return make_float2(__int_as_float(int(bits << 16)), __int_as_float(int(bits & 0xffff0000)));
}

// Types of two bytes per value; kPair converts a word of two values.
template <float2 (*kPair)(uint32_t)>
struct TwoByteFloats {
  static constexpr int kValueBytes = 2;

  static __device__ __forceinline__ void eight(const uint8_t* p, FloatUnit& out) {
    const uint4 bits = __ldg((const uint4*)p);
    const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int i = 0; i < 4; i++) set(kPair(words[i]), i, out);
  }

  static __device__ __forceinline__ float2 two(const uint8_t* p) {
    return kPair(__ldg((const uint32_t*)p));
  }

  static __device__ __forceinline__ void set(float2 pair, int i, FloatUnit& out) {
    out.values[2 * i] = pair.x;
    out.values[2 * i + 1] = pair.y;
  }
};

struct F16 : TwoByteFloats<pair_of_halves> {};
struct BF16 : TwoByteFloats<pair_of_brain_floats> {};

struct F32 {
  static constexpr int kValueBytes = 4;

  static __device__ __forceinline__ void eight(const uint8_t* p, FloatUnit& out) {
    const float4 a = __ldg((const float4*)p), b = __ldg((const float4*)p + 1);
    out = {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
  }

  static __device__ __forceinline__ float2 two(const uint8_t* p) { return __ldg((const float2*)p); }
};

// Loads the values [8 * unit, 8 * unit + 8) of a row; values past its end are zero.
template <class Type>
__device__ __forceinline__ void load_floats(const uint8_t* row, int unit, int columns,
                                            FloatUnit& out) {
  const uint8_t* p = row + size_t(unit) * (8 * Type::kValueBytes);
  if (columns % 8 == 0) return Type::eight(p, out);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const bool inside = 8 * unit + 2 * i < columns;
    const float2 pair = inside ? Type::two(p + 2 * i * Type::kValueBytes) : make_float2(0.f, 0.f);
    out.values[2 * i] = pair.x;
    out.values[2 * i + 1] = pair.y;
  }
}

}  // namespace sharpi
