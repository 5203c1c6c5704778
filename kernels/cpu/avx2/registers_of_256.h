// The AVX2 operations that the matrix products are made of, by names that two registers of half the
// size can have too (sse41/registers_of_128.h).
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace sharpi::avx2 {
namespace {

using Ints = __m256i;
using Floats = __m256;
constexpr bool kTwoRegisters = false;  // for one of these

inline Ints zero() { return _mm256_setzero_si256(); }
inline Ints bytes(int x) { return _mm256_set1_epi8(char(x)); }
inline Ints words(int x) { return _mm256_set1_epi16(int16_t(x)); }
inline Ints dwords(int x) { return _mm256_set1_epi32(x); }
inline Ints dwords(int a, int b, int c, int d, int e, int f, int g, int h) {
  return _mm256_setr_epi32(a, b, c, d, e, f, g, h);
}
inline Ints qwords(int64_t x) { return _mm256_set1_epi64x(x); }
inline Ints qwords(int64_t a, int64_t b, int64_t c, int64_t d) {
  return _mm256_setr_epi64x(a, b, c, d);
}
inline Ints halves(__m128i low, __m128i high) { return _mm256_setr_m128i(low, high); }
inline Ints twice(__m128i x) { return _mm256_broadcastsi128_si256(x); }

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
inline Ints load(const void* p) { return _mm256_load_si256((const Ints*)p); }
inline Ints load_any(const void* p) {  // any alignment
  return _mm256_loadu_si256((const Ints*)p);
}
inline Ints load_halves(const void* low, const void* high) {
  return _mm256_loadu2_m128i((const __m128i*)high, (const __m128i*)low);
}
inline Ints load_words(const int16_t* p) {
  return _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i*)p));
}
inline Ints load_unsigned_words(const void* p) {
  return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p));
}
// From places of their own: blends of loads that fill a register have more ports than insertions.
inline Ints load_qwords(const void* a, const void* b, const void* c, const void* d) {
  const auto all = [](const void* p) { return qwords(load_qword(p)); };
  return _mm256_blend_epi32(_mm256_blend_epi32(all(a), all(b), 0x0c),
                            _mm256_blend_epi32(all(c), all(d), 0xc0), 0xf0);
}
inline Ints load_dwords(const void* a, const void* b, const void* c, const void* d, const void* e,
                        const void* f, const void* g, const void* h) {
  const auto all = [](const void* p) { return dwords(load_dword(p)); };
  const Ints low = _mm256_blend_epi32(_mm256_blend_epi32(all(a), all(b), 0x02),
                                      _mm256_blend_epi32(all(c), all(d), 0x08), 0x0c);
  const Ints high = _mm256_blend_epi32(_mm256_blend_epi32(all(e), all(f), 0x20),
                                       _mm256_blend_epi32(all(g), all(h), 0x80), 0xc0);
  return _mm256_blend_epi32(low, high, 0xf0);
}
// Does the same with loads alone, each of which has its qword in the right place. 16 bytes from a
// on are read, and up to 24 before the others.
inline Ints load_spaced_qwords(const uint8_t* a, const uint8_t* b, const uint8_t* c,
                               const uint8_t* d) {
  const auto half = [](const uint8_t* p) {
    return _mm256_castsi128_si256(_mm_loadu_si128((const __m128i*)p));
  };
  return _mm256_blend_epi32(_mm256_blend_epi32(half(a), half(b - 8), 0x0c),
                            _mm256_blend_epi32(load_any(c - 16), load_any(d - 24), 0xc0), 0xf0);
}
inline void store(void* p, Ints x) { _mm256_store_si256((Ints*)p, x); }

inline Ints bit_and(Ints a, Ints b) { return _mm256_and_si256(a, b); }
inline Ints bit_or(Ints a, Ints b) { return _mm256_or_si256(a, b); }
inline Ints bit_xor(Ints a, Ints b) { return _mm256_xor_si256(a, b); }
inline Ints and_not(Ints mask, Ints x) { return _mm256_andnot_si256(mask, x); }
inline Ints select(Ints a, Ints b, Ints mask) { return _mm256_blendv_epi8(a, b, mask); }

inline Ints add8(Ints a, Ints b) { return _mm256_add_epi8(a, b); }
inline Ints add16(Ints a, Ints b) { return _mm256_add_epi16(a, b); }
inline Ints add32(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
inline Ints sub8(Ints a, Ints b) { return _mm256_sub_epi8(a, b); }
inline Ints sub16(Ints a, Ints b) { return _mm256_sub_epi16(a, b); }
inline Ints sub32(Ints a, Ints b) { return _mm256_sub_epi32(a, b); }
inline Ints multiply16(Ints a, Ints b) { return _mm256_mullo_epi16(a, b); }
inline Ints multiply32(Ints a, Ints b) { return _mm256_mullo_epi32(a, b); }
// Multiply words, or unsigned bytes with signed ones, and add every two products.
inline Ints madd16(Ints a, Ints b) { return _mm256_madd_epi16(a, b); }
inline Ints madd8(Ints a, Ints b) { return _mm256_maddubs_epi16(a, b); }
inline Ints max32(Ints a, Ints b) { return _mm256_max_epi32(a, b); }
inline Ints min_u8(Ints a, Ints b) { return _mm256_min_epu8(a, b); }
inline Ints subtract_u8(Ints a, Ints b) { return _mm256_subs_epu8(a, b); }  // not below 0
inline Ints abs8(Ints x) { return _mm256_abs_epi8(x); }
inline Ints sign8(Ints x, Ints sign) { return _mm256_sign_epi8(x, sign); }
inline Ints greater8(Ints a, Ints b) { return _mm256_cmpgt_epi8(a, b); }
inline Ints equal8(Ints a, Ints b) { return _mm256_cmpeq_epi8(a, b); }
inline Ints equal32(Ints a, Ints b) { return _mm256_cmpeq_epi32(a, b); }

inline Ints shl16(Ints x, int by) { return _mm256_slli_epi16(x, by); }
inline Ints shr16(Ints x, int by) { return _mm256_srli_epi16(x, by); }
inline Ints sar16(Ints x, int by) { return _mm256_srai_epi16(x, by); }
inline Ints shl32(Ints x, int by) { return _mm256_slli_epi32(x, by); }
inline Ints shr32(Ints x, int by) { return _mm256_srli_epi32(x, by); }
inline Ints sar32(Ints x, int by) { return _mm256_srai_epi32(x, by); }

// These interleave within each half.
inline Ints shuffle_bytes(Ints x, Ints from) { return _mm256_shuffle_epi8(x, from); }
template <int kFrom>
inline Ints shuffle_dwords(Ints x) {
  return _mm256_shuffle_epi32(x, kFrom);
}
inline Ints interleave_low8(Ints a, Ints b) { return _mm256_unpacklo_epi8(a, b); }
inline Ints interleave_high8(Ints a, Ints b) { return _mm256_unpackhi_epi8(a, b); }
inline Ints interleave_low16(Ints a, Ints b) { return _mm256_unpacklo_epi16(a, b); }
inline Ints interleave_high16(Ints a, Ints b) { return _mm256_unpackhi_epi16(a, b); }
inline Ints interleave_low32(Ints a, Ints b) { return _mm256_unpacklo_epi32(a, b); }
inline Ints interleave_high32(Ints a, Ints b) { return _mm256_unpackhi_epi32(a, b); }
inline Ints interleave_low64(Ints a, Ints b) { return _mm256_unpacklo_epi64(a, b); }
inline Ints interleave_high64(Ints a, Ints b) { return _mm256_unpackhi_epi64(a, b); }

inline Floats zero_floats() { return _mm256_setzero_ps(); }
inline Floats floats(float x) { return _mm256_set1_ps(x); }
inline Floats alternate(float a, float b) { return _mm256_setr_ps(a, b, a, b, a, b, a, b); }
inline Floats broadcast(const float* p) { return _mm256_broadcast_ss(p); }
inline Floats load_floats(const float* p) { return _mm256_load_ps(p); }
inline Floats load_any_floats(const float* p) { return _mm256_loadu_ps(p); }  // any alignment
inline void store_floats(float* p, Floats x) { _mm256_store_ps(p, x); }
inline Floats multiply_add(Floats a, Floats b, Floats sum) { return _mm256_fmadd_ps(a, b, sum); }
template <int kFrom>
inline Floats shuffle_floats(Floats a, Floats b) {
  return _mm256_shuffle_ps(a, b, kFrom);
}
// Return the first and the last four of x, each twice.
inline Floats first_twice(Floats x) {
  return _mm256_permutevar8x32_ps(x, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
}
inline Floats last_twice(Floats x) {
  return _mm256_permutevar8x32_ps(x, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7));
}
inline __m128 sum_of_halves(Floats x) {
  return _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
}

inline Floats as_floats(Ints x) { return _mm256_castsi256_ps(x); }
inline Ints as_ints(Floats x) { return _mm256_castps_si256(x); }
inline Floats to_float(Ints x) { return _mm256_cvtepi32_ps(x); }
inline Floats from_half(__m128i x) { return _mm256_cvtph_ps(x); }  // 8 of fp16
// Converts the fp16 in the low half of every dword.
inline Floats low_half(Ints x) {
  const Ints low = bit_and(x, dwords(0xffff));
  return from_half(_mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)));
}

// Converts the two fp16 of every dword.
inline void both_halves(Ints x, Floats& low, Floats& high) {
  const __m128i order = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
  const Ints sorted = shuffle_bytes(x, twice(order));
  const __m128i a = _mm256_castsi256_si128(sorted), b = _mm256_extracti128_si256(sorted, 1);
  low = from_half(_mm_unpacklo_epi64(a, b)), high = from_half(_mm_unpackhi_epi64(a, b));
}

// Makes the compiler compute x here, not later.
template <class Register>
inline void settle(Register& x) {
  asm("" : "+x"(x));
}

}  // namespace
}  // namespace sharpi::avx2
