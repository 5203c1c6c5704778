// Intrinsics on floats. Those that a GPU approximates are exact here: nothing may depend on their
// last bits.
#pragma once
#include <cstdint>

// What kernels and the intrinsics below call: <cmath> declares more, and takes a sixth of a build.
extern "C" {
double ceil(double) noexcept;
double floor(double) noexcept;
double nearbyint(double) noexcept;
double trunc(double) noexcept;
float cosf(float) noexcept;
float erff(float) noexcept;
float expf(float) noexcept;
float fabsf(float) noexcept;
float fmaf(float, float, float) noexcept;
float fmaxf(float, float) noexcept;
float fminf(float, float) noexcept;
float expm1f(float) noexcept;
float log1pf(float) noexcept;
float log2f(float) noexcept;
float logf(float) noexcept;
float powf(float, float) noexcept;
float sinf(float) noexcept;
float sqrtf(float) noexcept;
float tanhf(float) noexcept;
}

namespace emulator {

template <class To, class From>
To bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "bits of another size");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

// A GPU's conversion: what is too large becomes the largest, NaN becomes 0.
inline int saturated(double value) {
  if (value != value) return 0;
  if (value >= 2147483647.) return INT32_MAX;
  return value <= -2147483648. ? INT32_MIN : int(value);
}

}  // namespace emulator

inline float __int_as_float(int x) { return emulator::bits<float>(x); }
inline float __uint_as_float(unsigned x) { return emulator::bits<float>(x); }
inline int __float_as_int(float x) { return emulator::bits<int>(x); }
inline unsigned __float_as_uint(float x) { return emulator::bits<unsigned>(x); }

inline int __float2int_rn(float x) { return emulator::saturated(nearbyint(double(x))); }
inline int __float2int_rz(float x) { return emulator::saturated(trunc(double(x))); }
inline int __float2int_rd(float x) { return emulator::saturated(floor(double(x))); }
inline int __float2int_ru(float x) { return emulator::saturated(ceil(double(x))); }
inline float __int2float_rn(int x) { return float(x); }
inline float __uint2float_rn(unsigned x) { return float(x); }

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __frcp_rn(float x) { return 1.f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return 1.f / sqrtf(x); }
inline float rsqrtf(float x) { return 1.f / sqrtf(x); }
inline float __saturatef(float x) { return x > 0.f ? fminf(x, 1.f) : 0.f; }

inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return powf(10.f, x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
