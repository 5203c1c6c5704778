// Shared by the IQ types: points of large grids, and signs, for 16 rows at a time.
//
// Points of grids too large for registers are looked up row by row and written transposed
// (iq_points.h).
#pragma once
#include "grid_lookup.h"
#include "iq_scales.h"
#include "quant/iq_points.h"

namespace sharpi::avx512 {
namespace {

// Points of eight columns.
template <class Points>
struct Turned : TurnedPoints<Points, kLanes> {
  [[gnu::noinline]] explicit Turned(Rows blocks) {
    for (int r = 0; r < kLanes; r++) this->set_row(r, blocks.at(r));
  }
  // Loads 32 columns from 32 * part on.
  [[gnu::always_inline]] void load(int part, Ints w[8]) const {
    for (int k = 0; k < 8; k += 2) {
      const auto* both = this->points[4 * part + k / 2];
      const Floats a = _mm512_load_ps(both), b = _mm512_load_ps(both + 8);
      w[k] = _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88));
      w[k + 1] = _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xdd));
    }
  }
};

// Adds the eighth sign to four times seven signs of each row, bits 0..6 of each byte: the number of
// set bits becomes even.
[[gnu::always_inline]] inline Ints even_signs(Ints seven) {
  const Ints odd = _mm512_broadcast_i32x4(
      _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
  const Ints low = _mm512_shuffle_epi8(odd, low_nibbles(seven));
  const Ints high = _mm512_shuffle_epi8(odd, high_nibbles(seven));
  return bit_or(seven, _mm512_xor_si512(low, high));
}
// Does the same from 28 bits in one dword.
[[gnu::always_inline]] inline Ints even_signs_of_28(Ints x) {
  const Ints low = merge_bits(x, dwords(0x7f), _mm512_slli_epi32(x, 1), dwords(0x7f00));
  const Ints high = merge_bits(_mm512_slli_epi32(x, 2), dwords(0x7f0000), _mm512_slli_epi32(x, 3),
                               dwords(0x7f000000));
  return even_signs(bit_or(low, high));
}

// Computes w = bias + w, or bias - w where the sign is set; bit i of a row's dword is the sign of
// its value i.
[[gnu::always_inline]] inline void apply_signs(Ints signs, int bias, Ints w[8]) {
#pragma GCC unroll 8
  for (int k = 0; k < 8; k++) {
    const Ints spread = _mm512_shuffle_epi8(signs, repeat_byte(k / 2));
    const __mmask64 minus =
        _mm512_test_epi8_mask(spread, dwords(k % 2 ? int(0x80402010) : 0x08040201));
    w[k] = _mm512_mask_sub_epi8(_mm512_add_epi8(bytes(bias), w[k]), minus, bytes(bias), w[k]);
  }
}

// Takes the numbers of four points as bytes of a dword, and returns those of points 0 and 2, or of
// 1 and 3, as 16 bits each.
[[gnu::always_inline]] inline Ints every_other(Ints four, int odd) {
  return bit_and(odd ? _mm512_srli_epi32(four, 8) : four, dwords(0x00ff00ff));
}

}  // namespace
}  // namespace sharpi::avx512
