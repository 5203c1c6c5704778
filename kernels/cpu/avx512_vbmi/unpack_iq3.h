// Unpacks points of four columns times signs, 16 rows at a time: IQ3_XXS, IQ3_S.
#pragma once
#include <cstddef>

#include "../avx512/iq_scales.h"
#include "grid_lookup.h"

namespace sharpi::avx512_vbmi {
namespace {

// A table of bias + or - a magnitude, indexed by its three bits and, above them, the sign; other
// bits are ignored.
struct alignas(64) SignedValues {
  uint8_t values[64];

  constexpr SignedValues(const uint8_t (&magnitudes)[8], int bias) : values() {
    for (int i = 0; i < 64; i++)
      values[i] = uint8_t(i & 8 ? bias - magnitudes[i % 8] : bias + magnitudes[i % 8]);
  }
};

// Unpacks 32 columns from the codes of eight points, four bits per column; bit c of every dword of
// signs belongs to column c.
template <class Out>
[[gnu::always_inline]] inline void put_points(const Codes& codes, const SignedValues& values,
                                              Ints signs, int part, Out& out) {
  Ints w[8];
#pragma GCC unroll 8
  for (int k = 0; k < 8; k++) {
    const Ints first = bits_from(codes.first[k / 4], k % 4 * 8, 4),
               last = bits_from(codes.last[k / 4], k % 4 * 8 - 8, 4);
    const Ints codes_of_row = _mm512_mask_mov_epi8(first, 0xcccccccccccccccc, last);
    w[k] = look_up(load(values.values),
                   choose_bits(bytes(7), codes_of_row, bits_from(signs, 4 * k - 3, 1)));
  }
  out.weights(part, w);
}

struct UnpackIQ3_XXS {
  static constexpr TileKind kKind{32, false, 62};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockIQ3_XXS);
  static constexpr uint8_t kMagnitudes[8] = {4, 12, 20, 28, 36, 44, 52, 62};
  static constexpr SignedValues kValues{kMagnitudes, 62};

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    Ints qs[16], rest[8];
    transpose64(blocks + offsetof(BlockIQ3_XXS, qs), qs);
    transpose32(blocks + (offsetof(BlockIQ3_XXS, qs) + 64), rest);
    const Floats d = first_halves(blocks);
    const auto numbers = [&](int half) { return Numbers(qs[half]); };
    look_up_pairs(kIQ3XXSBytes, 16, numbers, [&](int part, const Codes& codes) {
      out.scale(part, with_half<4>(d, _mm512_srli_epi32(rest[part], 28), 0.5f));
      put_points(codes, kValues, even_signs<0>(bits_from(rest[part], 0, 7)), part, out);
    });
  }
};

struct UnpackIQ3_S {
  static constexpr TileKind kKind{32, false, 15};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockIQ3_S);
  static constexpr uint8_t kMagnitudes[8] = {1, 3, 5, 7, 9, 11, 13, 15};
  static constexpr SignedValues kValues{kMagnitudes, 15};

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const Floats d = first_halves(blocks);
    const Ints scales = gather4(blocks + offsetof(BlockIQ3_S, scales));
    Ints qs[16], signs[8], qh[4];  // the first two of qh are followed by signs
    transpose64(blocks + offsetof(BlockIQ3_S, qs), qs);
    transpose16(blocks + offsetof(BlockIQ3_S, qh), qh);
    transpose32(blocks + offsetof(BlockIQ3_S, signs), signs);
    for (int g = 0; g < 8; g++) out.scale(g, with_half<4>(d, _mm512_srli_epi32(scales, 4 * g), 2));
    const auto numbers = [&](int half) {  // four bits of qh for each
      const Ints ninth = bits_from(_mm512_srlv_epi32(qh[half / 8], dwords(half % 8 * 4)), 0, 1);
      return Numbers(qs[half], has_bit(ninth, 0));
    };
    look_up_pairs(kIQ3SBytes, 16, numbers, [&](int part, const Codes& codes) {
      put_points(codes, kValues, signs[part], part, out);
    });
  }
};

}  // namespace
}  // namespace sharpi::avx512_vbmi
