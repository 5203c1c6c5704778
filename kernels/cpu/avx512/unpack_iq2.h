// Unpacks points of eight columns times signs, 16 rows at a time: IQ2_XXS, IQ2_XS, IQ2_S.
#pragma once
#include "grid_lookup.h"
#include "unpack_iq.h"

namespace sharpi::avx512 {
namespace {

struct UnpackIQ2_XXS {
  static constexpr TileKind kKind{32, false, 43};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockIQ2_XXS);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const Grid<256> grid(kIQ2XXSGrid);
    Ints qs[16];  // of each part: four points, then signs and scale
    transpose64(blocks + offsetof(BlockIQ2_XXS, qs), qs);
    const Floats d = first_halves(blocks);
#pragma GCC unroll 1
    for (int part = 0; part < 8; part++) {
      const Ints rest = qs[2 * part + 1];
      out.scale(part, with_half<4>(d, _mm512_srli_epi32(rest, 28), 0.25f));
      Ints w[8];
      for (int odd = 0; odd < 2; odd++) {
        const Ints codes = grid.find(every_other(qs[2 * part], odd));
        for (int i = 0; i < 4; i++) w[2 * odd + i % 2 + i / 2 * 4] = values_of_iq2(codes, i);
      }
      apply_signs(even_signs_of_28(rest), kKind.bias, w);
      out.weights(part, w);
    }
  }
};

struct UnpackIQ2_XS {
  static constexpr TileKind kKind{16, false, 43};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockIQ2_XS);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const Grid<512> grid(kIQ2XSGrid);
    Ints end[4];  // the last two are the scales
    transpose16(blocks + (sizeof(BlockIQ2_XS) - 16), end);
    put_nibble_scales(first_halves(blocks), end + 2, out);
    Ints qs[16];
    transpose64(blocks + offsetof(BlockIQ2_XS, qs), qs);
#pragma GCC unroll 1
    for (int part = 0; part < 8; part++) {
      Ints w[8];
      for (int half = 0; half < 2; half++) {
        const Ints codes = grid.find(bit_and(qs[2 * part + half], dwords(0x01ff01ff)));
        for (int i = 0; i < 4; i++) w[4 * half + i] = values_of_iq2(codes, i);
      }
      apply_signs(signs(qs[2 * part], qs[2 * part + 1]), kKind.bias, w);
      out.weights(part, w);
    }
  }

 private:
  // Takes the signs from the top seven bits of four times 16.
  [[gnu::always_inline]] static Ints signs(Ints first, Ints last) {
    const Ints low = merge_bits(_mm512_srli_epi32(first, 9), dwords(0x7f),
                                _mm512_srli_epi32(first, 17), dwords(0x7f00));
    const Ints high = merge_bits(_mm512_slli_epi32(last, 7), dwords(0x7f0000),
                                 _mm512_srli_epi32(last, 1), dwords(0x7f000000));
    return even_signs(bit_or(low, high));
  }
};

struct UnpackIQ2_S {
  static constexpr TileKind kKind{16, false, 43};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockIQ2_S);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const Turned<PointsOfIQ2_S> points(blocks);
    Ints end[4];  // two with high bits, two with scales
    transpose16(blocks + offsetof(BlockIQ2_S, qh), end);
    put_nibble_scales(first_halves(blocks), end + 2, out);
    Ints signs[8];
    transpose32(blocks + (offsetof(BlockIQ2_S, qs) + 32), signs);
#pragma GCC unroll 1
    for (int part = 0; part < 8; part++) {
      Ints w[8];
      points.load(part, w);
      apply_signs(signs[part], kKind.bias, w);
      out.weights(part, w);
    }
  }
};

}  // namespace
}  // namespace sharpi::avx512
