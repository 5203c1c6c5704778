// Unpacks points of -1, 0 and 1, shifted by an eighth, 16 rows at a time: IQ1_S, IQ1_M.
#pragma once
#include "unpack_iq.h"

namespace sharpi::avx512 {
namespace {

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
    Ints end[8];  // the last bytes of qs, then qh, scales
    transpose32(blocks + (sizeof(BlockIQ1_M) - 32), end);
    put_scales_of_iq1_m(end + 6, out);
    const Ints* qh = end + 2;  // of two parts each
#pragma GCC unroll 1
    for (int part = 0; part < 8; part++) {
      const Ints own = part % 2 ? qh[part / 2] : _mm512_slli_epi32(qh[part / 2], 16);
      Ints w[8];
      points.load(part, w);
#pragma GCC unroll 4
      for (int j = 0; j < 4; j++) {  // of 8 columns; bit 19 + 4 * j is set for minus
        const Ints plus =
            bit_and(_mm512_srli_epi32(_mm512_ternarylogic_epi32(own, own, own, 0x55), 18 + 4 * j),
                    dwords(2));
        const Ints four = _mm512_shuffle_epi8(plus, repeat_byte(0));
        for (int k = 2 * j; k < 2 * j + 2; k++) w[k] = _mm512_add_epi8(w[k], four);
      }
      out.weights(part, w);
    }
  }
};

}  // namespace
}  // namespace sharpi::avx512
