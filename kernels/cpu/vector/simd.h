// Functions of sixteen floats, and fp16 conversions. Internal linkage throughout, as in
// wide_floats.h.
#pragma once
#include <cmath>
#if defined(__F16C__) || defined(__AVX512F__)
#include <immintrin.h>
#elif defined(__SSE4_1__)
#include "halves_sse41.h"
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "wide_floats.h"

namespace {

template <int kHalf, class Fold>
[[gnu::always_inline]] inline Own fold_lanes(Own x, Fold combine) {
  if constexpr (kHalf == 0) return x;
  else
    return fold_lanes<kHalf / 2>(combine(x, shuffled(x, x, [](int lane) { return lane ^ kHalf; })),
                                 combine);
}

// Folds the parts of a vector onto its first part.
template <class Fold>
[[gnu::always_inline]] inline Own fold_parts(F32x16 v, Fold combine) {
#pragma GCC unroll 2
  for (int half = kOwnParts / 2; half > 0; half /= 2)
    for (int i = 0; i < half; i++) v.part[i] = combine(v.part[i], v.part[i + half]);
  return v.part[0];
}

// Reductions fold halves onto each other, in one fixed order.
template <class Fold>
[[gnu::always_inline]] inline float fold(F32x16 v, Fold combine) {
  return fold_lanes<kOwnLanes / 2>(fold_parts(v, combine), combine)[0];
}
[[gnu::always_inline]] inline float sum(F32x16 v) {
  return fold(v, [](Own a, Own b) { return a + b; });
}

// Sums several vectors over their lanes at the same time: eight vectors become one, in three steps
// that each fold and pair them. Vector n's result is the one that `fold_lanes` has.
template <int kHalf, int kCount, class Fold>
[[gnu::always_inline]] inline void fold_pairs(Own* x, Fold combine) {
#pragma GCC unroll 4
  for (int i = 0; i < kCount / 2; i++) {
    const Own a = x[i], b = x[i + kCount / 2];
    const auto low = [](int l) { return l & kHalf ? kOwnLanes + l - kHalf : l; };
    const auto high = [](int l) { return l & kHalf ? kOwnLanes + l : l + kHalf; };
    x[i] = combine(shuffled(a, b, low), shuffled(a, b, high));
  }
}
template <class Fold>
[[gnu::always_inline]] inline void fold_eight(Own* x, Fold combine, float* out) {
  if constexpr (kOwnLanes < 8) {
    for (int n = 0; n < 8; n++) out[n] = fold_lanes<kOwnLanes / 2>(x[n], combine)[0];
  } else {
    fold_pairs<kOwnLanes / 2, 8>(x, combine);
    fold_pairs<kOwnLanes / 4, 4>(x, combine);
    fold_pairs<kOwnLanes / 8, 2>(x, combine);
    const Own all = fold_lanes<kOwnLanes / 16>(x[0], combine);
    for (int n = 0; n < 8; n++) out[n] = all[n * (kOwnLanes / 8)];
  }
}
// Computes 2^r for r from -1/2 to 1/2.
[[gnu::always_inline]] inline F32x16 power_of_fraction(F32x16 r) {
  F32x16 p = broadcast(1.5403530e-4f);
  p = p * r + 1.3333558e-3f;
  p = p * r + 9.6181291e-3f;
  p = p * r + 5.5504109e-2f;
  p = p * r + 2.4022651e-1f;
  p = p * r + 6.9314718e-1f;
  return p * r + 1.0f;
}

// Computes e^x with a relative error below 2e-7 within [-87, 88]; saturates outside, and e^-inf is
// 0. A NaN stays NaN, because it is compared last.
[[gnu::always_inline]] inline F32x16 exp(F32x16 x) {
  const F32x16 y = min(broadcast(127.f), max(broadcast(-126.f), x * 1.44269504f));
  const F32x16 magic = broadcast(12582912.f);  // 1.5 * 2^23: adding it rounds to an integer
  const F32x16 n = (y + magic) - magic;
  return zero_under(x, -87.33f, power_of_fraction(y - n) * power_of_two(n));
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

[[gnu::always_inline]] inline F32x16 load_half(const uint16_t* p) {
#if defined(__AVX512F__)
  return {(Own)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p))};
#elif defined(__F16C__)
  return each_part([=](int i) {
    return (Own)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + i * kOwnLanes)));
  });
#elif defined(__aarch64__)
  return each_part(
      [=](int i) { return (Own)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + i * kOwnLanes))); });
#elif defined(__SSE4_1__)
  return each_part([=](int i) {
    return (Own)low_four_halves(_mm_loadl_epi64((const __m128i*)(p + i * kOwnLanes)));
  });
#else
  float x[kLanes];
  for (int i = 0; i < kLanes; i++) x[i] = half_to_float(p[i]);
  return load(x);
#endif
}

inline void store_half(uint16_t* p, F32x16 v) {
#if defined(__AVX512F__)
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph((__m512)v.part[0], 0));
#elif defined(__F16C__)
  for (int i = 0; i < kOwnParts; i++)
    _mm_storeu_si128((__m128i*)(p + i * kOwnLanes), _mm256_cvtps_ph((__m256)v.part[i], 0));
#elif defined(__aarch64__)
  for (int i = 0; i < kOwnParts; i++)
    vst1_u16(p + i * kOwnLanes, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)v.part[i])));
#else
  float x[kLanes];
  store(x, v);
  for (int i = 0; i < kLanes; i++) p[i] = float_to_half(x[i]);
#endif
}

inline F32x16 sigmoid(F32x16 x) { return 1.f / (1.f + exp(-x)); }
inline F32x16 tanh(F32x16 x) { return 2.f * sigmoid(2.f * x) - 1.f; }

}  // namespace
