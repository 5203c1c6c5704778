// Operations of the matrix products on registers of 32 bytes: AVX2's, or two of SSE.
#pragma once
#if defined(__AVX2__)
#include "registers_of_256.h"
#else
#include "sse41/registers_of_128.h"
#endif

#include <cstring>

namespace sharpi::avx2 {
namespace {

inline int load_word(const void* p) {
  uint16_t x;
  memcpy(&x, p, sizeof x);
  return x;
}
// Loads 16 bytes into both halves.
inline Ints twice(const void* p) { return twice(_mm_load_si128((const __m128i*)p)); }

// With AVX-VNNI one instruction adds four products to an int32; without it they go by int16.
#if defined(__AVXVNNI__)
constexpr bool kHasDot = true;
inline Ints dot(Ints sum, Ints w, Ints x) { return _mm256_dpbusd_avx_epi32(sum, w, x); }
#elif defined(__AVX512VNNI__) && defined(__AVX512VL__)  // where tests have no other processor
constexpr bool kHasDot = true;
inline Ints dot(Ints sum, Ints w, Ints x) { return _mm256_dpbusd_epi32(sum, w, x); }
#else
constexpr bool kHasDot = false;
inline Ints dot(Ints sum, Ints w, Ints x) { return add32(sum, madd16(madd8(w, x), words(1))); }
#endif

// Joins the low words of every dword, those of b above.
#if defined(__AVX2__)
inline Ints join_low_words(Ints a, Ints b) { return _mm256_blend_epi16(a, shl32(b, 16), 0xaa); }
#else
inline Ints join_low_words(Ints a, Ints b) {
  return bit_or(bit_and(a, dwords(0xffff)), shl32(b, 16));
}
#endif

// Return the low and the high four bits of every byte.
inline Ints low_nibbles(Ints x) { return bit_and(x, bytes(15)); }
inline Ints high_nibbles(Ints x) { return bit_and(shr16(x, 4), bytes(15)); }
// Moves bit `from` of every byte to bit kTo; bits of other bytes come along, for a mask to drop.
template <int kTo>
inline Ints shift_bits(Ints x, int from) {
  return from > kTo ? shr16(x, from - kTo) : shl16(x, kTo - from);
}

// Looks up each byte of w in a table of 16 values.
inline Ints look_up(__m128i table, Ints w) { return shuffle_bytes(twice(table), w); }

// Returns x in the bytes of `spread` that have the bit of one_bit, else 0; two signs undo bit 7's.
inline Ints where_bit(Ints spread, Ints one_bit, int x) {
  return sign8(sign8(bytes(x), one_bit), bit_and(spread, one_bit));
}

// Returns the shuffle that repeats byte i of every dword four times.
inline Ints repeat_byte(int i) {
  const __m128i first = _mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c);
  return twice(_mm_add_epi8(first, _mm_set1_epi8(char(i))));
}

// Converts the fp16 in the high half of every dword.
inline Floats high_half(Ints x) { return low_half(shr32(x, 16)); }
// Converts a whole scale, which both words of a dword hold.
inline Floats word_scale(Ints words) { return to_float(sar32(words, 16)); }

}  // namespace
}  // namespace sharpi::avx2
