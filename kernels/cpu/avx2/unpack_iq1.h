// Points of -1, 0 and 1, moved by an eighth, 8 rows at a time: IQ1_S, IQ1_M.
#pragma once
#include "unpack_iq.h"

namespace sharpi::avx2 {

// w - 9 is 8 * point - 1, or + 1 where `plus` is 2: eight times the value.
constexpr int kIq1Bias = 9, kIq1Most = 18;

// d * (2 * scale + 1) / 8; the scale's three bits are the lowest
inline Floats eighth_scale(Floats d, Ints scale) {
  return with_half(d, bit_and(scale, dwords(7)), 0.25f);
}

struct UnpackIQ1_S {
  static constexpr TileKind kKind{32, false, kIq1Bias, kIq1Most};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockIQ1_S);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const Turned<PointsOfIQ1_S> points(blocks);
    const Floats d = gather_halves(blocks);
    Ints qh[4];  // of two groups each
    transpose16(blocks + offsetof(BlockIQ1_S, qh), qh);
    for (int g = 0; g < 8; g++) {
      const Ints own = g % 2 ? qh[g / 2] : _mm256_slli_epi32(qh[g / 2], 16);
      out.scale(g, eighth_scale(d, _mm256_srli_epi32(own, 28)));
      const Ints plus = _mm256_andnot_si256(_mm256_srai_epi32(own, 31), bytes(2));
      Ints w[8];
      points.load(g, w);
      for (int k = 0; k < 8; k++) w[k] = _mm256_add_epi8(w[k], plus);
      put_part(g, w, out);
    }
  }
};

struct UnpackIQ1_M {
  static constexpr TileKind kKind{16, false, kIq1Bias, kIq1Most};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockIQ1_M);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const Turned<PointsOfIQ1_M> points(blocks);
    unpack_scales(blocks, out);
    Ints qh[4];
    transpose16(blocks + offsetof(BlockIQ1_M, qh), qh);
    for (int i = 0; i < 8; i++) {
      Ints w[8];
      points.load(i, w);
      for (int k = 0; k < 8; k++) {  // bit 3 of each nibble says minus, for 8 columns
        const Ints minus = _mm256_srli_epi32(qh[i / 2], i % 2 * 16 + k / 2 * 4 + 2);
        const Ints plus =
            _mm256_shuffle_epi8(_mm256_andnot_si256(minus, dwords(2)), repeat_byte(0));
        w[k] = _mm256_add_epi8(w[k], plus);
      }
      put_part(i, w, out);
    }
  }

 private:
  // Four times 16 bits: four scales of three bits, and four bits of d.
  template <class Out>
  [[gnu::always_inline]] static void unpack_scales(Rows blocks, Out& out) {
    const Rows scales = blocks + offsetof(BlockIQ1_M, scales);
    const Ints x[2] = {gather4(scales), gather4(scales + 4)};
    const Ints low = bit_or(bit_and(_mm256_srli_epi32(x[0], 12), dwords(0xf)),
                            bit_and(_mm256_srli_epi32(x[0], 24), dwords(0xf0)));
    const Ints high = bit_or(bit_and(_mm256_srli_epi32(x[1], 4), dwords(0xf00)),
                             bit_and(_mm256_srli_epi32(x[1], 16), dwords(0xf000)));
    const Floats d = low_half(bit_or(low, high));
    for (int g = 0; g < 16; g++) {
      const Ints scale = _mm256_srli_epi32(x[g / 8], g / 4 % 2 * 16 + g % 4 * 3);
      out.scale(g, eighth_scale(d, scale));
    }
  }
};

}  // namespace sharpi::avx2
