// Names for the few AVX2 operations the matrix products are made of.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace sharpi::avx2 {
namespace {

using Ints = __m256i;
using Floats = __m256;

inline int load_dword(const void* p) {
  int x;
  memcpy(&x, p, sizeof x);
  return x;
}
inline int load_word(const void* p) {
  uint16_t x;
  memcpy(&x, p, sizeof x);
  return x;
}
inline Ints zero() { return _mm256_setzero_si256(); }
inline Ints bytes(int x) { return _mm256_set1_epi8(char(x)); }
inline Ints dwords(int x) { return _mm256_set1_epi32(x); }
inline Ints load(const void* p) { return _mm256_load_si256((const Ints*)p); }
// 16 bytes, in both halves.
inline Ints twice(const void* p) {
  return _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i*)p));
}
inline void store(void* p, Ints x) { _mm256_store_si256((Ints*)p, x); }
inline Ints bit_and(Ints a, Ints b) { return _mm256_and_si256(a, b); }
inline Ints bit_or(Ints a, Ints b) { return _mm256_or_si256(a, b); }

// With AVX-VNNI one instruction adds four products to an int32; without it they go by int16.
#if defined(__AVXVNNI__)
constexpr bool kHasDot = true;
inline Ints dot(Ints sum, Ints w, Ints x) { return _mm256_dpbusd_avx_epi32(sum, w, x); }
#elif defined(__AVX512VNNI__) && defined(__AVX512VL__)  // where tests have no other processor
constexpr bool kHasDot = true;
inline Ints dot(Ints sum, Ints w, Ints x) { return _mm256_dpbusd_epi32(sum, w, x); }
#else
constexpr bool kHasDot = false;
inline Ints dot(Ints sum, Ints w, Ints x) {
  const Ints pairs = _mm256_maddubs_epi16(w, x);
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
#endif

// The low, the high four bits of every byte.
inline Ints low_nibbles(Ints x) { return bit_and(x, bytes(15)); }
inline Ints high_nibbles(Ints x) { return bit_and(_mm256_srli_epi16(x, 4), bytes(15)); }
// Moves bit `from` of every byte to bit kTo; bits of other bytes come along, for a mask to drop.
template <int kTo>
inline Ints shift_bits(Ints x, int from) {
  return from > kTo ? _mm256_srli_epi16(x, from - kTo) : _mm256_slli_epi16(x, kTo - from);
}

// Of words that are in each dword twice, a's and b's.
inline Ints both_scales(Ints a, Ints b) { return _mm256_blend_epi16(a, b, 0xaa); }

// The values of a table that the bytes of w are indices of.
inline Ints look_up(__m128i table, Ints w) {
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), w);
}

// `x` in the bytes that have the bit of one_bit, else 0: the sign of bit 7 goes both ways.
inline Ints where_bit(Ints spread, Ints one_bit, int x) {
  return _mm256_sign_epi8(_mm256_sign_epi8(bytes(x), one_bit), bit_and(spread, one_bit));
}

// For shuffles: byte i of every dword, four times.
inline Ints repeat_byte(int i) {
  const __m128i first = _mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c);
  return _mm256_broadcastsi128_si256(_mm_add_epi8(first, _mm_set1_epi8(char(i))));
}

// The fp16 in the low, the high half of every dword.
inline Floats low_half(Ints x) {
  const Ints low = bit_and(x, dwords(0xffff));
  return _mm256_cvtph_ps(
      _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)));
}
inline Floats high_half(Ints x) { return low_half(_mm256_srli_epi32(x, 16)); }
inline Floats to_float(Ints x) { return _mm256_cvtepi32_ps(x); }
// A whole scale, which both words of a dword have.
inline Floats word_scale(Ints words) { return to_float(_mm256_srai_epi32(words, 16)); }

}  // namespace
}  // namespace sharpi::avx2
