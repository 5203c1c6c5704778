// Points of -1, 0 and 1, moved by an eighth, 16 rows at a time: IQ1_S, IQ1_M.
#pragma once
#include "unpack_iq.h"

namespace sharpi::avx512 {
namespace {

// w - 9 is 8 * point - 1, or + 1 where `plus` is 2: eight times the value.
constexpr int kIq1Bias = 9;

// d * (2 * scale + 1) / 8
[[gnu::always_inline]] inline Floats eighth_scale(Floats d, Ints scale) {
  return with_half(d, bit_and(scale, dwords(7)), 0.25f);
}

struct UnpackIQ1_S {
  static constexpr TileKind kKind{32, false, kIq1Bias};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockIQ1_S);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const Turned<PointsOfIQ1_S> points(blocks);
    const Floats d = first_halves(blocks);
    Ints qh[4];  // of two parts each
    transpose16(blocks + offsetof(BlockIQ1_S, qh), qh);
#pragma GCC unroll 1
    for (int part = 0; part < 8; part++) {
      const Ints own = part % 2 ? qh[part / 2] : _mm512_slli_epi32(qh[part / 2], 16);
      out.scale(part, eighth_scale(d, _mm512_srli_epi32(own, 28)));
      const Ints minus = _mm512_srai_epi32(own, 31);
      Ints w[8];
      points.load(part, w);
      for (int k = 0; k < 8; k++)
        w[k] = _mm512_add_epi8(w[k], _mm512_andnot_si512(minus, bytes(2)));
      out.weights(part, w);
    }
  }
};

struct UnpackIQ1_M {
  static constexpr TileKind kKind{16, false, kIq1Bias};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockIQ1_M);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const Turned<PointsOfIQ1_M> points(blocks);
    unpack_scales(blocks, out);
    Ints qh[4];  // of two parts each
    transpose16(blocks + offsetof(BlockIQ1_M, qh), qh);
#pragma GCC unroll 1
    for (int part = 0; part < 8; part++) {
      const Ints own = part % 2 ? qh[part / 2] : _mm512_slli_epi32(qh[part / 2], 16);
      Ints w[8];
      points.load(part, w);
#pragma GCC unroll 4
      for (int j = 0; j < 4; j++) {  // of 8 columns; bit 19 + 4 * j says minus
        const Ints plus =
            bit_and(_mm512_srli_epi32(_mm512_ternarylogic_epi32(own, own, own, 0x55), 18 + 4 * j),
                    dwords(2));
        const Ints four = _mm512_shuffle_epi8(plus, repeat_byte(0));
        for (int k = 2 * j; k < 2 * j + 2; k++) w[k] = _mm512_add_epi8(w[k], four);
      }
      out.weights(part, w);
    }
  }

 private:
  // Four times 16 bits: four scales of three bits, and four bits of d.
  template <class Out>
  [[gnu::always_inline]] static void unpack_scales(Rows blocks, Out& out) {
    const Rows scales = blocks + offsetof(BlockIQ1_M, scales);
    const Ints x[2] = {gather4(scales), gather4(scales + 4)};
    const Ints low = merge_bits(_mm512_srli_epi32(x[0], 12), dwords(0xf),
                                _mm512_srli_epi32(x[0], 24), dwords(0xf0));
    const Ints high = merge_bits(_mm512_srli_epi32(x[1], 4), dwords(0xf00),
                                 _mm512_srli_epi32(x[1], 16), dwords(0xf000));
    const Floats d = low_half(bit_or(low, high));
    for (int g = 0; g < 16; g++)
      out.scale(g, eighth_scale(d, _mm512_srli_epi32(x[g / 8], g / 4 % 2 * 16 + g % 4 * 3)));
  }
};

}  // namespace
}  // namespace sharpi::avx512
