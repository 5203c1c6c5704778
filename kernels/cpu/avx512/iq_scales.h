// Scales of the IQ types, 16 rows at a time.
#pragma once
#include <cstddef>

#include "quant_blocks.h"
#include "tile.h"
#include "transpose.h"

namespace sharpi::avx512 {
namespace {

// Computes d * (scale + 1/2) * factor, for scales in the lowest bits of every dword; other bits are
// ignored.
template <int kBits>
[[gnu::always_inline]] inline Floats with_half(Floats d, Ints scales, float factor) {
  static_assert(kBits <= 4);
  Floats products;
  for (int i = 0; i < 16; i++) products[i] = (float(i % (1 << kBits)) + 0.5f) * factor;
  return _mm512_mul_ps(d, _mm512_permutexvar_ps(scales, products));
}
// Loads the half float at the beginning of every row's block.
[[gnu::always_inline]] inline Floats first_halves(Rows blocks) { return low_half(gather4(blocks)); }

// Scales of IQ2_XS and IQ2_S: 16 nibbles.
template <class Out>
[[gnu::always_inline]] inline void put_nibble_scales(Floats d, const Ints nibbles[2], Out& out) {
#pragma GCC unroll 16
  for (int g = 0; g < 16; g++)
    out.scale(g, with_half<4>(d, _mm512_srli_epi32(nibbles[g / 8], g % 8 * 4), 0.25f));
}

// IQ1_S, IQ1_M: w - 9 is 8 * point - 1, or 8 * point + 1 where the point is shifted up: eight times
// the value.
constexpr int kIq1Bias = 9;

// Computes d * (2 * scale + 1) / 8.
[[gnu::always_inline]] inline Floats eighth_scale(Floats d, Ints scale) {
  return with_half<3>(d, scale, 0.25f);
}

// Scales of IQ1_M: four times 16 bits, each with four scales of three bits and four bits of d.
template <class Out>
[[gnu::always_inline]] inline void put_scales_of_iq1_m(const Ints x[2], Out& out) {
  const Ints low = merge_bits(_mm512_srli_epi32(x[0], 12), dwords(0xf), _mm512_srli_epi32(x[0], 24),
                              dwords(0xf0));
  const Ints high = merge_bits(_mm512_srli_epi32(x[1], 4), dwords(0xf00),
                               _mm512_srli_epi32(x[1], 16), dwords(0xf000));
  const Floats d = low_half(bit_or(low, high));
#pragma GCC unroll 16
  for (int g = 0; g < 16; g++)
    out.scale(g, eighth_scale(d, _mm512_srli_epi32(x[g / 8], g / 4 % 2 * 16 + g % 4 * 3)));
}

}  // namespace
}  // namespace sharpi::avx512
