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
inline Ints zero() { return _mm256_setzero_si256(); }
inline Ints bytes(int x) { return _mm256_set1_epi8(char(x)); }
inline Ints dwords(int x) { return _mm256_set1_epi32(x); }
inline Ints load(const void* p) { return _mm256_load_si256((const Ints*)p); }
inline void store(void* p, Ints x) { _mm256_store_si256((Ints*)p, x); }
inline Ints bit_and(Ints a, Ints b) { return _mm256_and_si256(a, b); }
inline Ints bit_or(Ints a, Ints b) { return _mm256_or_si256(a, b); }

// The low, the high four bits of every byte.
inline Ints low_nibbles(Ints x) { return bit_and(x, bytes(15)); }
inline Ints high_nibbles(Ints x) { return bit_and(_mm256_srli_epi16(x, 4), bytes(15)); }
// Moves bit `from` of every byte to bit kTo; bits of neighbours come along, for a mask to drop.
template <int kTo>
inline Ints shift_bits(Ints x, int from) {
  return from > kTo ? _mm256_srli_epi16(x, from - kTo) : _mm256_slli_epi16(x, kTo - from);
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

}  // namespace
}  // namespace sharpi::avx2
