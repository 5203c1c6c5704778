// Unpacks points of four columns times signs, 16 rows at a time: IQ3_XXS, IQ3_S.
#pragma once
#include "grid_lookup.h"
#include "unpack_iq.h"

namespace sharpi::avx512 {
namespace {

struct UnpackIQ3_XXS {
  static constexpr TileKind kKind{32, false, 62};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockIQ3_XXS);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const Grid<256> grid(kIQ3XXSGrid);
    const __m128i values = _mm_setr_epi8(4, 12, 20, 28, 36, 44, 52, 62, 0, 0, 0, 0, 0, 0, 0, 0);
    Ints qs[16], rest[8];
    transpose64(blocks + offsetof(BlockIQ3_XXS, qs), qs);
    transpose32(blocks + (offsetof(BlockIQ3_XXS, qs) + 64), rest);
    const Floats d = first_halves(blocks);
#pragma GCC unroll 1
    for (int part = 0; part < 8; part++) {
      out.scale(part, with_half<4>(d, _mm512_srli_epi32(rest[part], 28), 0.5f));
      Ints w[8];
      for (int i = 0; i < 4; i++) {
        const Ints codes = grid.find(every_other(qs[2 * part + i / 2], i % 2));
        for (int half = 0; half < 2; half++)
          w[i / 2 * 4 + 2 * half + i % 2] = values_of_iq3(codes, half, values);
      }
      apply_signs(even_signs_of_28(rest[part]), kKind.bias, w);
      out.weights(part, w);
    }
  }
};

struct UnpackIQ3_S {
  static constexpr TileKind kKind{32, false, 15};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockIQ3_S);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const Grid<512> grid(kIQ3SGrid);
    const __m128i values = _mm_setr_epi8(1, 3, 5, 7, 9, 11, 13, 15, 0, 0, 0, 0, 0, 0, 0, 0);
    const Floats d = first_halves(blocks);
    const Ints scales = gather4(blocks + offsetof(BlockIQ3_S, scales));
    Ints qs[16], signs[8], qh[4];  // the first two of qh are followed by signs
    transpose64(blocks + offsetof(BlockIQ3_S, qs), qs);
    transpose16(blocks + offsetof(BlockIQ3_S, qh), qh);
    transpose32(blocks + offsetof(BlockIQ3_S, signs), signs);
    for (int g = 0; g < 8; g++) out.scale(g, with_half<4>(d, _mm512_srli_epi32(scales, 4 * g), 2));
#pragma GCC unroll 1
    for (int part = 0; part < 8; part++) {
      const Ints ninth =
          _mm512_slli_epi32(_mm512_srlv_epi32(qh[part / 4], dwords(part % 4 * 8)), 8);
      Ints w[8];
      for (int i = 0; i < 4; i++) {
        const Ints low = every_other(qs[2 * part + i / 2], i % 2);
        const int point = i / 2 * 4 + i % 2;
        const Ints high = merge_bits(_mm512_srli_epi32(ninth, point), dwords(0x100),
                                     _mm512_slli_epi32(ninth, 14 - point), dwords(0x1000000));
        const Ints codes = grid.find(bit_or(low, high));
        for (int half = 0; half < 2; half++)
          w[point + 2 * half] = values_of_iq3(codes, half, values);
      }
      apply_signs(signs[part], kKind.bias, w);
      out.weights(part, w);
    }
  }
};

}  // namespace
}  // namespace sharpi::avx512
