// Sixteen floats at a time, through the compiler's vector types: one source for every instruction set.
//
// Everything here has internal linkage, since the same header is compiled with different target flags.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__F16C__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace {

typedef float F32x16 __attribute__((vector_size(64)));
typedef int32_t I32x16 __attribute__((vector_size(64)));
constexpr int kLanes = 16;

inline F32x16 load(const float* p) {
  F32x16 v;
  memcpy(&v, p, sizeof v);
  return v;
}
inline void store(float* p, F32x16 v) { memcpy(p, &v, sizeof v); }
inline F32x16 broadcast(float x) { return x - F32x16{}; }  // minus zero is nothing to do, plus zero is

#if defined(__AVX2__) && !defined(__AVX512F__)
// gcc takes comparisons and conversions of 64 bytes apart, value by value; halves are registers.
struct Halves {
  __m256 low, high;
};
inline Halves halves(F32x16 v) {
  Halves h;
  memcpy(&h, &v, sizeof h);
  return h;
}
inline F32x16 whole(Halves h) {
  F32x16 v;
  memcpy(&v, &h, sizeof v);
  return v;
}
inline F32x16 max(F32x16 a, F32x16 b) {
  const Halves x = halves(a), y = halves(b);
  return whole({_mm256_max_ps(x.low, y.low), _mm256_max_ps(x.high, y.high)});
}
inline F32x16 min(F32x16 a, F32x16 b) {
  const Halves x = halves(a), y = halves(b);
  return whole({_mm256_min_ps(x.low, y.low), _mm256_min_ps(x.high, y.high)});
}
// v, or 0 where x is under the limit
inline F32x16 zero_under(F32x16 x, float limit, F32x16 v) {
  const __m256 least = _mm256_set1_ps(limit);
  const Halves a = halves(x), b = halves(v);
  return whole({_mm256_and_ps(b.low, _mm256_cmp_ps(a.low, least, _CMP_NLT_UQ)),
                _mm256_and_ps(b.high, _mm256_cmp_ps(a.high, least, _CMP_NLT_UQ))});
}
// 2^n of whole numbers
inline F32x16 power_of_two(F32x16 n) {
  const Halves h = halves(n);
  const __m256i bias = _mm256_set1_epi32(127);
  const auto power = [&](__m256 x) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(x), bias), 23));
  };
  return whole({power(h.low), power(h.high)});
}
#else
inline F32x16 max(F32x16 a, F32x16 b) { return a > b ? a : b; }
inline F32x16 min(F32x16 a, F32x16 b) { return a < b ? a : b; }
inline F32x16 zero_under(F32x16 x, float limit, F32x16 v) { return x < limit ? F32x16{} : v; }
inline F32x16 power_of_two(F32x16 n) {
  const I32x16 exponent = (__builtin_convertvector(n, I32x16) + 127) << 23;
  F32x16 power;
  memcpy(&power, &exponent, sizeof power);
  return power;
}
#endif

// Reductions fold halves onto each other: one fixed order.
template <class Fold>
inline float fold(F32x16 v, Fold combine) {
  float x[kLanes];
  store(x, v);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; i++) x[i] = combine(x[i], x[i + width]);
  return x[0];
}
inline float sum(F32x16 v) {
  return fold(v, [](float a, float b) { return a + b; });
}
inline float maximum(F32x16 v) {
  return fold(v, [](float a, float b) { return a > b ? a : b; });
}

// e^x, relative error below 2e-7 within [-87, 88]; saturates outside, and e^-inf is 0.
inline F32x16 exp(F32x16 x) {
  const F32x16 y = min(max(x * 1.44269504f, broadcast(-126.f)), broadcast(127.f));
  const F32x16 magic = broadcast(12582912.f);  // 1.5 * 2^23: adding it rounds to an integer
  const F32x16 n = (y + magic) - magic, r = y - n;
  F32x16 p = broadcast(1.5403530e-4f);
  p = p * r + 1.3333558e-3f;
  p = p * r + 9.6181291e-3f;
  p = p * r + 5.5504109e-2f;
  p = p * r + 2.4022651e-1f;
  p = p * r + 6.9314718e-1f;
  p = p * r + 1.0f;
  return zero_under(x, -87.33f, p * power_of_two(n));
}

inline float half_to_float(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 1023;
  uint32_t bits = sign | (exponent + 112) << 23 | mantissa << 13;
  if (exponent == 31) bits = sign | 0x7f800000 | mantissa << 13;
  float x;
  memcpy(&x, &bits, 4);
  return exponent ? x : (sign ? -1.f : 1.f) * float(mantissa) * 0x1p-24f;
}

// Rounds to nearest, ties to even.
inline uint16_t float_to_half(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  const uint16_t sign = bits >> 16 & 0x8000;
  bits &= 0x7fffffff;
  if (bits >= 0x7f800000) return sign | 0x7c00 | (bits > 0x7f800000 ? 0x200 : 0);
  if (bits >= 0x477ff000) return sign | 0x7c00;
  if (bits < 0x38800000) {  // subnormal: the addition aligns and rounds
    float y;
    memcpy(&y, &bits, 4);
    y += 0.5f;
    memcpy(&bits, &y, 4);
    return sign | uint16_t(bits - 0x3f000000);
  }
  return sign | uint16_t((bits + 0xfff + (bits >> 13 & 1) - 0x38000000) >> 13);
}

inline F32x16 load_half(const uint16_t* p) {
#if defined(__AVX512F__)
  return (F32x16)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
#elif defined(__F16C__)
  F32x16 v;
  const __m256 low = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p));
  const __m256 high = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + 8)));
  memcpy(&v, &low, 32);
  memcpy((char*)&v + 32, &high, 32);
  return v;
#else
  float x[kLanes];
  for (int i = 0; i < kLanes; i++) x[i] = half_to_float(p[i]);
  return load(x);
#endif
}

inline void store_half(uint16_t* p, F32x16 v) {
#if defined(__AVX512F__)
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph((__m512)v, 0));
#else
  float x[kLanes];
  store(x, v);
#if defined(__F16C__)
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph(_mm256_loadu_ps(x), 0));
  _mm_storeu_si128((__m128i*)(p + 8), _mm256_cvtps_ph(_mm256_loadu_ps(x + 8), 0));
#else
  for (int i = 0; i < kLanes; i++) p[i] = float_to_half(x[i]);
#endif
#endif
}

inline F32x16 sigmoid(F32x16 x) { return 1.f / (1.f + exp(-x)); }
inline F32x16 tanh(F32x16 x) { return 2.f * sigmoid(2.f * x) - 1.f; }

}  // namespace
