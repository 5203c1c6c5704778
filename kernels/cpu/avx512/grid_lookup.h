// Looks up the points of small grids (256 or 512 points) in registers, for 16 rows at a time.
#pragma once
#include "iq_grids.h"
#include "registers.h"

namespace sharpi::avx512 {
namespace {

// A grid's codes (iq_grids.h), 16 bits each.
template <int kPoints>
struct Grid {
  Ints codes[kPoints / 32];

  explicit Grid(const uint16_t (&grid)[kPoints]) {
    for (int i = 0; i < kPoints / 32; i++) codes[i] = _mm512_loadu_si512(grid + 32 * i);
  }
  // Returns the code for the number in each 16 bits.
  [[gnu::always_inline]] Ints find(Ints numbers) const {
    Ints found[kPoints / 64];
    for (int i = 0; i < kPoints / 64; i++)
      found[i] = _mm512_permutex2var_epi16(codes[2 * i], numbers, codes[2 * i + 1]);
    for (int bit = 6, left = kPoints / 64; left > 1; bit++, left /= 2) {
      const __mmask32 odd = _mm512_test_epi16_mask(numbers, _mm512_set1_epi16(short(1 << bit)));
      for (int i = 0; i < left / 2; i++)
        found[i] = _mm512_mask_mov_epi16(found[2 * i], odd, found[2 * i + 1]);
    }
    return found[0];
  }
};

// Returns the values of four columns with two bits each, from byte i of every dword: bits in place,
// as 0 to 3 or four times that, index `values`.
[[gnu::always_inline]] inline Ints values_of_two_bits(Ints x, int i, __m128i values) {
  const Ints byte = _mm512_shuffle_epi8(x, repeat_byte(i));
  const Ints in_nibbles =  // bits 0 and 1, or 2 and 3
      merge_bits(byte, dwords(0x0c03), _mm512_srli_epi32(byte, 4), dwords(0x0c030000));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(values), in_nibbles);
}
[[gnu::always_inline]] inline Ints values_of_iq2(Ints codes, int i) {
  return values_of_two_bits(codes, i,
                            _mm_setr_epi8(8, 25, 43, 0, 25, 0, 0, 0, 43, 0, 0, 0, 0, 0, 0, 0));
}

// Returns the values of four columns with four bits each, from the low or the high half of every
// dword.
[[gnu::always_inline]] inline Ints values_of_iq3(Ints codes, int half, __m128i values) {
  const __m128i low = _mm_setr_epi32(0x01010000, 0x05050404, 0x09090808, 0x0d0d0c0c);
  const __m128i bytes_twice = _mm_add_epi8(low, _mm_set1_epi8(char(2 * half)));
  const Ints twice = _mm512_shuffle_epi8(codes, _mm512_broadcast_i32x4(bytes_twice));
  const Ints nibbles =
      merge_bits(twice, dwords(0x000f000f), _mm512_srli_epi32(twice, 4), dwords(0x0f000f00));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(values), nibbles);
}

}  // namespace
}  // namespace sharpi::avx512
