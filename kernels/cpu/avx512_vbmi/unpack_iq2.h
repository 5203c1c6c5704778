// Unpacks points of eight columns times signs, 16 rows at a time: IQ2_XXS, IQ2_XS, IQ2_S.
#pragma once
#include <cstddef>

#include "../avx512/iq_scales.h"
#include "grid_lookup.h"

namespace sharpi::avx512_vbmi {
namespace {

constexpr int kIQ2Bias = 43;

// A table of kIQ2Bias + or - a magnitude, indexed by its two bits, with the sign of byte b of four
// in bit 5 - b; other bits are ignored.
struct alignas(64) ValuesOfIQ2 {
  uint8_t values[4][64];

  constexpr ValuesOfIQ2() : values() {
    constexpr int kMagnitudes[4] = {8, 25, 43};
    for (int b = 0; b < 4; b++)
      for (int i = 0; i < 64; i++)
        values[b][i] = uint8_t(i >> (5 - b) & 1 ? kIQ2Bias - kMagnitudes[i & 3]
                                                : kIQ2Bias + kMagnitudes[i & 3]);
  }
};
constexpr ValuesOfIQ2 kIQ2Values;

// Returns four signs of each of a dword's bytes, from bit `first` on: byte i of the result has sign
// i of byte b in bit 5 - b. As rows of a matrix, the bytes of two dwords make the bits of both, and
// each keeps its own.
[[gnu::always_inline]] inline Ints signs_by_column(Ints signs, int first) {
  const Ints of_both = _mm512_gf2p8affine_epi64_epi8(dwords(int(0x08040201u << first)), signs, 0);
  return _mm512_rorv_epi32(of_both, _mm512_set1_epi64(int64_t(30) << 32 | 2));
}

// Unpacks 32 columns from the codes of four points, two bits per column. Byte place[p] of every
// dword belongs to point p, in the signs too.
template <class Out>
[[gnu::always_inline]] inline void put_points(Ints first, Ints last, Ints signs,
                                              const int (&place)[4], int part, Out& out) {
  const Ints minus[2] = {signs_by_column(signs, 0), signs_by_column(signs, 4)};
  Ints w[8];
#pragma GCC unroll 8
  for (int k = 0; k < 8; k++) {
    const Ints code = bits_from(k % 2 ? last : first, 8 * place[k / 2], 2);
    w[k] =
        look_up(load(kIQ2Values.values[place[k / 2]]), choose_bits(bytes(3), code, minus[k % 2]));
  }
  out.weights(part, w);
}

struct UnpackIQ2_XXS {
  static constexpr TileKind kKind{32, false, kIQ2Bias};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockIQ2_XXS);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    Ints qs[16];  // of each part: four points, then signs and scale
    transpose64(blocks + offsetof(BlockIQ2_XXS, qs), qs);
    const Floats d = first_halves(blocks);
    const auto numbers = [&](int part) { return Numbers(qs[2 * part]); };
    look_up_parts(kIQ2XXSBytes, numbers, [&](int part, Ints first, Ints last) {
      const Ints rest = qs[2 * part + 1];
      out.scale(part, with_half<4>(d, _mm512_srli_epi32(rest, 28), 0.25f));
      put_points(first, last, even_signs<0>(bits_from(rest, 0, 7)), {0, 1, 2, 3}, part, out);
    });
  }
};

struct UnpackIQ2_XS {
  static constexpr TileKind kKind{16, false, kIQ2Bias};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockIQ2_XS);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    Ints end[4];  // the last two are the scales
    transpose16(blocks + (sizeof(BlockIQ2_XS) - 16), end);
    put_nibble_scales(first_halves(blocks), end + 2, out);
    Ints qs[16];
    transpose64(blocks + offsetof(BlockIQ2_XS, qs), qs);
    // The bytes of a part are points 0, 2, 1, 3; the low bytes, and the high bytes with the signs.
    const Ints even = dwords(0x00ff00ff);
    const auto low = [&](int part) {
      return choose_bits(even, qs[2 * part], _mm512_slli_epi32(qs[2 * part + 1], 8));
    };
    const auto high = [&](int part) {
      return choose_bits(even, _mm512_srli_epi32(qs[2 * part], 8), qs[2 * part + 1]);
    };
    const auto numbers = [&](int part) { return Numbers(low(part), has_bit(high(part), 0)); };
    look_up_parts(kIQ2XSBytes, numbers, [&](int part, Ints first, Ints last) {
      put_points(first, last, even_signs<1>(high(part)), {0, 2, 1, 3}, part, out);
    });
  }
};

struct UnpackIQ2_S {
  static constexpr TileKind kKind{16, false, kIQ2Bias};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockIQ2_S);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    Ints qh[4];  // followed by the scales
    transpose16(blocks + offsetof(BlockIQ2_S, qh), qh);
    put_nibble_scales(first_halves(blocks), qh + 2, out);
    Ints qs[8], signs[8];
    transpose32(blocks + offsetof(BlockIQ2_S, qs), qs);
    transpose32(blocks + (offsetof(BlockIQ2_S, qs) + 32), signs);
    const auto numbers = [&](int part) {
      const Ints two = bits_from(_mm512_srlv_epi32(qh[part / 4], dwords(part % 4 * 8)), 0, 2);
      return Numbers(qs[part], has_bit(two, 0), has_bit(two, 1));
    };
    look_up_parts(kIQ2SBytes, numbers, [&](int part, Ints first, Ints last) {
      put_points(first, last, signs[part], {0, 1, 2, 3}, part, out);
    });
  }
};

}  // namespace
}  // namespace sharpi::avx512_vbmi
