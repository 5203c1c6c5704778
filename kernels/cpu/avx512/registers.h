// Names for the few AVX-512 operations that the matrix products are made of.
//
// Internal linkage here and in all of this folder: no code for AVX-512 may be linked into another
// file.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace sharpi::avx512 {
namespace {

using Ints = __m512i;
using Floats = __m512;

inline int load_dword(const void* p) {
  int x;
  memcpy(&x, p, sizeof x);
  return x;
}
inline Ints zero() { return _mm512_setzero_si512(); }
inline Ints bytes(int x) { return _mm512_set1_epi8(char(x)); }
inline Ints dwords(int x) { return _mm512_set1_epi32(x); }
inline Ints load(const void* p) { return _mm512_load_si512(p); }
inline void store(void* p, Ints x) { _mm512_store_si512(p, x); }

inline Ints bit_and(Ints a, Ints b) { return _mm512_and_si512(a, b); }
inline Ints bit_or(Ints a, Ints b) { return _mm512_or_si512(a, b); }
// (a & mask) | (b & other_mask)
inline Ints merge_bits(Ints a, Ints mask, Ints b, Ints other_mask) {
  return _mm512_ternarylogic_epi32(a, mask, bit_and(b, other_mask), 0xea);
}
// Takes bits from `a` where the mask has ones, from `b` elsewhere.
inline Ints choose_bits(Ints mask, Ints a, Ints b) {
  return _mm512_ternarylogic_epi32(mask, a, b, 0xca);
}
// Return the low or the high four bits of every byte.
inline Ints low_nibbles(Ints x) { return bit_and(x, bytes(15)); }
inline Ints high_nibbles(Ints x) { return bit_and(_mm512_srli_epi16(x, 4), bytes(15)); }
// Moves bit `from` of every byte to bit kTo; bits of adjacent bytes come along, for a mask to drop.
template <int kTo>
inline Ints shift_bits(Ints x, int from) {
  return from > kTo ? _mm512_srli_epi16(x, from - kTo) : _mm512_slli_epi16(x, kTo - from);
}
// Returns byte i of every dword; 0 <= i < 4.
inline Ints byte_of(Ints x, int i) { return bit_and(_mm512_srli_epi32(x, 8 * i), dwords(255)); }
// Returns byte i of every dword times 2^24, with its sign.
inline Ints top_byte(Ints x, int i) {
  if (i == 0) return _mm512_slli_epi32(x, 24);
  if (i == 3) return bit_and(x, dwords(int(0xff000000)));
  const __m128i lane =
      _mm_add_epi8(_mm_setr_epi8(-1, -1, -1, 0, -1, -1, -1, 4, -1, -1, -1, 8, -1, -1, -1, 12),
                   _mm_set1_epi32(i << 24));
  return _mm512_shuffle_epi8(x, _mm512_broadcast_i32x4(lane));
}

// Returns a shuffle control that repeats byte i of every dword four times.
inline Ints repeat_byte(int i) {
  const __m128i first = _mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c);
  return _mm512_broadcast_i32x4(_mm_add_epi8(first, _mm_set1_epi8(char(i))));
}

// Convert the fp16 in the low or the high half of every dword.
inline Floats low_half(Ints x) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x)); }
inline Floats high_half(Ints x) { return low_half(_mm512_srli_epi32(x, 16)); }
inline Floats to_float(Ints x) { return _mm512_cvtepi32_ps(x); }

}  // namespace
}  // namespace sharpi::avx512
