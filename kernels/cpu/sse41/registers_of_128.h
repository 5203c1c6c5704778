// Two registers of SSE as one of 32 bytes: the operations of avx2/registers_of_256.h, for
// processors without AVX2.
//
// The kernels of AVX2 keep 8 rows in a register, and hardly any of their operations cross its
// halves. There is no fused multiplication and addition here, so floats are rounded once more.
#pragma once
#include <smmintrin.h>

#include <cstdint>
#include <cstring>

#include "vector/halves_sse41.h"

namespace sharpi::avx2 {
namespace {

struct Ints {
  __m128i low, high;
};
struct Floats {
  __m128 low, high;
};
constexpr bool kTwoRegisters = true;  // for one of these

inline Ints twice(__m128i x) { return {x, x}; }
inline Ints zero() { return twice(_mm_setzero_si128()); }
inline Ints bytes(int x) { return twice(_mm_set1_epi8(char(x))); }
inline Ints words(int x) { return twice(_mm_set1_epi16(int16_t(x))); }
inline Ints dwords(int x) { return twice(_mm_set1_epi32(x)); }
inline Ints dwords(int a, int b, int c, int d, int e, int f, int g, int h) {
  return {_mm_setr_epi32(a, b, c, d), _mm_setr_epi32(e, f, g, h)};
}
inline Ints qwords(int64_t x) { return twice(_mm_set1_epi64x(x)); }
inline Ints qwords(int64_t a, int64_t b, int64_t c, int64_t d) {
  return {_mm_set_epi64x(b, a), _mm_set_epi64x(d, c)};
}
inline Ints halves(__m128i low, __m128i high) { return {low, high}; }

inline int load_dword(const void* p) {
  int x;
  memcpy(&x, p, sizeof x);
  return x;
}
inline int64_t load_qword(const void* p) {
  int64_t x;
  memcpy(&x, p, sizeof x);
  return x;
}
inline Ints load(const void* p) {
  const auto* both = (const __m128i*)p;
  return {_mm_load_si128(both), _mm_load_si128(both + 1)};
}
inline Ints load_any(const void* p) {  // any alignment
  const auto* both = (const __m128i*)p;
  return {_mm_loadu_si128(both), _mm_loadu_si128(both + 1)};
}
inline Ints load_halves(const void* low, const void* high) {
  return {_mm_loadu_si128((const __m128i*)low), _mm_loadu_si128((const __m128i*)high)};
}
inline Ints load_words(const int16_t* p) {
  return {_mm_cvtepi16_epi32(_mm_loadl_epi64((const __m128i*)p)),
          _mm_cvtepi16_epi32(_mm_loadl_epi64((const __m128i*)(p + 4)))};
}
inline Ints load_unsigned_words(const void* p) {
  const __m128i x = _mm_loadu_si128((const __m128i*)p);
  return {_mm_cvtepu16_epi32(x), _mm_unpackhi_epi16(x, _mm_setzero_si128())};
}
// From places of their own.
inline Ints load_qwords(const void* a, const void* b, const void* c, const void* d) {
  return qwords(load_qword(a), load_qword(b), load_qword(c), load_qword(d));
}
inline Ints load_dwords(const void* a, const void* b, const void* c, const void* d, const void* e,
                        const void* f, const void* g, const void* h) {
  return dwords(load_dword(a), load_dword(b), load_dword(c), load_dword(d), load_dword(e),
                load_dword(f), load_dword(g), load_dword(h));
}
inline Ints load_spaced_qwords(const void* a, const void* b, const void* c, const void* d) {
  return load_qwords(a, b, c, d);
}
inline void store(void* p, Ints x) {
  auto* both = (__m128i*)p;
  _mm_store_si128(both, x.low), _mm_store_si128(both + 1, x.high);
}

inline Ints bit_and(Ints a, Ints b) {
  return {_mm_and_si128(a.low, b.low), _mm_and_si128(a.high, b.high)};
}
inline Ints bit_or(Ints a, Ints b) {
  return {_mm_or_si128(a.low, b.low), _mm_or_si128(a.high, b.high)};
}
inline Ints bit_xor(Ints a, Ints b) {
  return {_mm_xor_si128(a.low, b.low), _mm_xor_si128(a.high, b.high)};
}
inline Ints and_not(Ints mask, Ints x) {
  return {_mm_andnot_si128(mask.low, x.low), _mm_andnot_si128(mask.high, x.high)};
}
inline Ints select(Ints a, Ints b, Ints mask) {
  return {_mm_blendv_epi8(a.low, b.low, mask.low), _mm_blendv_epi8(a.high, b.high, mask.high)};
}

inline Ints add8(Ints a, Ints b) {
  return {_mm_add_epi8(a.low, b.low), _mm_add_epi8(a.high, b.high)};
}
inline Ints add16(Ints a, Ints b) {
  return {_mm_add_epi16(a.low, b.low), _mm_add_epi16(a.high, b.high)};
}
inline Ints add32(Ints a, Ints b) {
  return {_mm_add_epi32(a.low, b.low), _mm_add_epi32(a.high, b.high)};
}
inline Ints sub8(Ints a, Ints b) {
  return {_mm_sub_epi8(a.low, b.low), _mm_sub_epi8(a.high, b.high)};
}
inline Ints sub16(Ints a, Ints b) {
  return {_mm_sub_epi16(a.low, b.low), _mm_sub_epi16(a.high, b.high)};
}
inline Ints sub32(Ints a, Ints b) {
  return {_mm_sub_epi32(a.low, b.low), _mm_sub_epi32(a.high, b.high)};
}
inline Ints multiply16(Ints a, Ints b) {
  return {_mm_mullo_epi16(a.low, b.low), _mm_mullo_epi16(a.high, b.high)};
}
inline Ints multiply32(Ints a, Ints b) {
  return {_mm_mullo_epi32(a.low, b.low), _mm_mullo_epi32(a.high, b.high)};
}
// Sums of two adjacent products: of signed words, and of unsigned bytes with signed bytes.
inline Ints madd16(Ints a, Ints b) {
  return {_mm_madd_epi16(a.low, b.low), _mm_madd_epi16(a.high, b.high)};
}
inline Ints madd8(Ints a, Ints b) {
  return {_mm_maddubs_epi16(a.low, b.low), _mm_maddubs_epi16(a.high, b.high)};
}
inline Ints max32(Ints a, Ints b) {
  return {_mm_max_epi32(a.low, b.low), _mm_max_epi32(a.high, b.high)};
}
inline Ints min_u8(Ints a, Ints b) {
  return {_mm_min_epu8(a.low, b.low), _mm_min_epu8(a.high, b.high)};
}
// Not below 0.
inline Ints subtract_u8(Ints a, Ints b) {
  return {_mm_subs_epu8(a.low, b.low), _mm_subs_epu8(a.high, b.high)};
}
inline Ints abs8(Ints x) { return {_mm_abs_epi8(x.low), _mm_abs_epi8(x.high)}; }
inline Ints sign8(Ints x, Ints sign) {
  return {_mm_sign_epi8(x.low, sign.low), _mm_sign_epi8(x.high, sign.high)};
}
inline Ints greater8(Ints a, Ints b) {
  return {_mm_cmpgt_epi8(a.low, b.low), _mm_cmpgt_epi8(a.high, b.high)};
}
inline Ints equal8(Ints a, Ints b) {
  return {_mm_cmpeq_epi8(a.low, b.low), _mm_cmpeq_epi8(a.high, b.high)};
}
inline Ints equal32(Ints a, Ints b) {
  return {_mm_cmpeq_epi32(a.low, b.low), _mm_cmpeq_epi32(a.high, b.high)};
}

inline Ints shl16(Ints x, int by) {
  return {_mm_slli_epi16(x.low, by), _mm_slli_epi16(x.high, by)};
}
inline Ints shr16(Ints x, int by) {
  return {_mm_srli_epi16(x.low, by), _mm_srli_epi16(x.high, by)};
}
inline Ints sar16(Ints x, int by) {
  return {_mm_srai_epi16(x.low, by), _mm_srai_epi16(x.high, by)};
}
inline Ints shl32(Ints x, int by) {
  return {_mm_slli_epi32(x.low, by), _mm_slli_epi32(x.high, by)};
}
inline Ints shr32(Ints x, int by) {
  return {_mm_srli_epi32(x.low, by), _mm_srli_epi32(x.high, by)};
}
inline Ints sar32(Ints x, int by) {
  return {_mm_srai_epi32(x.low, by), _mm_srai_epi32(x.high, by)};
}

// These work within each half.
inline Ints shuffle_bytes(Ints x, Ints from) {
  return {_mm_shuffle_epi8(x.low, from.low), _mm_shuffle_epi8(x.high, from.high)};
}
template <int kFrom>
inline Ints shuffle_dwords(Ints x) {
  return {_mm_shuffle_epi32(x.low, kFrom), _mm_shuffle_epi32(x.high, kFrom)};
}
inline Ints interleave_low8(Ints a, Ints b) {
  return {_mm_unpacklo_epi8(a.low, b.low), _mm_unpacklo_epi8(a.high, b.high)};
}
inline Ints interleave_high8(Ints a, Ints b) {
  return {_mm_unpackhi_epi8(a.low, b.low), _mm_unpackhi_epi8(a.high, b.high)};
}
inline Ints interleave_low16(Ints a, Ints b) {
  return {_mm_unpacklo_epi16(a.low, b.low), _mm_unpacklo_epi16(a.high, b.high)};
}
inline Ints interleave_high16(Ints a, Ints b) {
  return {_mm_unpackhi_epi16(a.low, b.low), _mm_unpackhi_epi16(a.high, b.high)};
}
inline Ints interleave_low32(Ints a, Ints b) {
  return {_mm_unpacklo_epi32(a.low, b.low), _mm_unpacklo_epi32(a.high, b.high)};
}
inline Ints interleave_high32(Ints a, Ints b) {
  return {_mm_unpackhi_epi32(a.low, b.low), _mm_unpackhi_epi32(a.high, b.high)};
}
inline Ints interleave_low64(Ints a, Ints b) {
  return {_mm_unpacklo_epi64(a.low, b.low), _mm_unpacklo_epi64(a.high, b.high)};
}
inline Ints interleave_high64(Ints a, Ints b) {
  return {_mm_unpackhi_epi64(a.low, b.low), _mm_unpackhi_epi64(a.high, b.high)};
}

inline Floats operator+(Floats a, Floats b) { return {a.low + b.low, a.high + b.high}; }
inline Floats operator-(Floats a, Floats b) { return {a.low - b.low, a.high - b.high}; }
inline Floats operator*(Floats a, Floats b) { return {a.low * b.low, a.high * b.high}; }
inline Floats floats(float x) { return {_mm_set1_ps(x), _mm_set1_ps(x)}; }
inline Floats zero_floats() { return floats(0); }
inline Floats alternate(float a, float b) {
  const __m128 four = _mm_setr_ps(a, b, a, b);
  return {four, four};
}
inline Floats broadcast(const float* p) { return floats(*p); }
inline Floats load_floats(const float* p) { return {_mm_load_ps(p), _mm_load_ps(p + 4)}; }
inline Floats load_any_floats(const float* p) { return {_mm_loadu_ps(p), _mm_loadu_ps(p + 4)}; }
inline void store_floats(float* p, Floats x) {
  _mm_store_ps(p, x.low), _mm_store_ps(p + 4, x.high);
}
inline Floats multiply_add(Floats a, Floats b, Floats sum) { return a * b + sum; }
template <int kFrom>
inline Floats shuffle_floats(Floats a, Floats b) {
  return {_mm_shuffle_ps(a.low, b.low, kFrom), _mm_shuffle_ps(a.high, b.high, kFrom)};
}
// The first, the last four of x, each twice.
inline Floats first_twice(Floats x) {
  return {_mm_unpacklo_ps(x.low, x.low), _mm_unpackhi_ps(x.low, x.low)};
}
inline Floats last_twice(Floats x) {
  return {_mm_unpacklo_ps(x.high, x.high), _mm_unpackhi_ps(x.high, x.high)};
}
inline __m128 sum_of_halves(Floats x) { return x.low + x.high; }

inline Floats as_floats(Ints x) { return {_mm_castsi128_ps(x.low), _mm_castsi128_ps(x.high)}; }
inline Ints as_ints(Floats x) { return {_mm_castps_si128(x.low), _mm_castps_si128(x.high)}; }
inline Floats to_float(Ints x) { return {_mm_cvtepi32_ps(x.low), _mm_cvtepi32_ps(x.high)}; }
inline Floats from_half(__m128i x) {  // 8 of fp16
  return {low_four_halves(x), high_four_halves(x)};
}
// The fp16 in the low half of every dword.
inline Floats low_half(Ints x) {
  const Ints low = bit_and(x, dwords(0xffff));
  return {from_four_halves(low.low), from_four_halves(low.high)};
}
inline void both_halves(Ints x, Floats& low, Floats& high) {
  low = low_half(x), high = low_half(shr32(x, 16));
}

// Has x computed here and nowhere later.
template <class Register>
inline void settle(Register& x) {
  asm("" : "+x"(x.low), "+x"(x.high));
}

}  // namespace
}  // namespace sharpi::avx2
