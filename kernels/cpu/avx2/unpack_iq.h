// Points of grids times signs, 8 rows at a time: IQ2_XXS to IQ3_S.
//
// Points are looked up row by row and written turned (iq_points.h); the rest is done for all rows.
#pragma once
#include <cstddef>

#include "../iq_points.h"
#include "quant_blocks.h"
#include "token_block.h"
#include "transpose.h"

namespace sharpi::avx2 {

template <class Points>
struct Turned : TurnedPoints<Points, kLanes> {
  [[gnu::noinline]] explicit Turned(Rows blocks) {
    for (int r = 0; r < kLanes; r++) this->set_row(r, blocks.at(r));
  }
  // 32 columns from 32 * part
  void load(int part, Ints w[8]) const {
    for (int k = 0; k < 8; k++) {
      if constexpr (sizeof(typename Points::Point) == 4) {
        w[k] = avx2::load(this->points[8 * part + k]);
      } else {
        const auto* both = reinterpret_cast<const float*>(this->points[4 * part + k / 2]);
        const Floats a = _mm256_load_ps(both), b = _mm256_load_ps(both + 8);
        const Floats four = k % 2 ? _mm256_shuffle_ps(a, b, 0xdd) : _mm256_shuffle_ps(a, b, 0x88);
        w[k] = _mm256_castps_si256(four);
      }
    }
  }
};

// Four times seven signs of each row, bits 0..6 of each byte, get their eighth: even in number.
inline Ints even_signs(Ints seven) {
  const Ints odd = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
  const Ints low = _mm256_shuffle_epi8(odd, low_nibbles(seven));
  const Ints high = _mm256_shuffle_epi8(odd, high_nibbles(seven));
  return bit_or(seven, _mm256_xor_si256(low, high));
}
// The same from 28 bits in one dword.
inline Ints even_signs_of_28(Ints x) {
  const Ints low =
      bit_or(bit_and(x, dwords(0x7f)), bit_and(_mm256_slli_epi32(x, 1), dwords(0x7f00)));
  const Ints high = bit_or(bit_and(_mm256_slli_epi32(x, 2), dwords(0x7f0000)),
                           bit_and(_mm256_slli_epi32(x, 3), dwords(0x7f000000)));
  return even_signs(bit_or(low, high));
}

// Part `part` as bias + or - its points; bit i of a row's dword is the sign of its value i.
template <int kBias, class Points, class Out>
[[gnu::always_inline]] inline void put_signed(const Turned<Points>& points, int part, Ints signs,
                                              Out& out) {
  Ints w[8];
  points.load(part, w);
#pragma GCC unroll 8
  for (int k = 0; k < 8; k++) {
    const Ints one_bit = dwords(k % 2 ? int(0x80402010) : 0x08040201);
    const Ints spread = bit_and(_mm256_shuffle_epi8(signs, repeat_byte(k / 2)), one_bit);
    const Ints minus = _mm256_cmpeq_epi8(spread, one_bit);
    const Ints value = _mm256_sub_epi8(_mm256_xor_si256(w[k], minus), minus);
    w[k] = _mm256_add_epi8(value, bytes(kBias));
  }
  put_part(part, w, out);
}

// d * (scale + 1/2) * factor
inline Floats with_half(Floats d, Ints scale, float factor) {
  const Floats x = _mm256_add_ps(to_float(scale), _mm256_set1_ps(0.5f));
  return _mm256_mul_ps(_mm256_mul_ps(d, x), _mm256_set1_ps(factor));
}
// Nibble i of every dword; 0 <= i < 8.
inline Ints nibble_of(Ints x, int i) { return bit_and(_mm256_srli_epi32(x, 4 * i), dwords(15)); }

struct UnpackIQ2_XXS {
  static constexpr TileKind kKind{32, false, 43, 86};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockIQ2_XXS);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const Turned<PointsOfIQ2_XXS> points(blocks);
    const Floats d = gather_halves(blocks);
    for (int g = 0; g < 8; g++) {
      const Ints rest = gather4(blocks + (offsetof(BlockIQ2_XXS, qs) + 8 * g + 4));
      out.scale(g, with_half(d, _mm256_srli_epi32(rest, 28), 0.25f));
      put_signed<kKind.bias>(points, g, even_signs_of_28(rest), out);
    }
  }
};

struct UnpackIQ3_XXS {
  static constexpr TileKind kKind{32, false, 62, 124};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockIQ3_XXS);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const Turned<PointsOfIQ3_XXS> points(blocks);
    const Floats d = gather_halves(blocks);
    for (int g = 0; g < 8; g++) {
      const Ints rest = gather4(blocks + (offsetof(BlockIQ3_XXS, qs) + 64 + 4 * g));
      out.scale(g, with_half(d, _mm256_srli_epi32(rest, 28), 0.5f));
      put_signed<kKind.bias>(points, g, even_signs_of_28(rest), out);
    }
  }
};

// 16 nibbles at `offset`
template <class Out>
[[gnu::always_inline]] inline void unpack_nibble_scales(Rows blocks, size_t offset, Out& out) {
  const Floats d = gather_halves(blocks);
  for (int half = 0; half < 2; half++) {
    const Ints scales = gather4(blocks + (offset + 4 * half));
    for (int i = 0; i < 8; i++) out.scale(8 * half + i, with_half(d, nibble_of(scales, i), 0.25f));
  }
}

struct UnpackIQ2_XS {
  static constexpr TileKind kKind{16, false, 43, 86};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockIQ2_XS);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const Turned<PointsOfIQ2_XS> points(blocks);
    unpack_nibble_scales(blocks, offsetof(BlockIQ2_XS, scales), out);
    for (int i = 0; i < 8; i++) {
      const Rows qs = blocks + (offsetof(BlockIQ2_XS, qs) + 8 * i);
      put_signed<kKind.bias>(points, i, signs(gather4(qs), gather4(qs + 4)), out);
    }
  }

 private:
  // From the top seven bits of four times 16.
  static Ints signs(Ints first, Ints last) {
    const Ints low = bit_or(bit_and(_mm256_srli_epi32(first, 9), dwords(0x7f)),
                            bit_and(_mm256_srli_epi32(first, 17), dwords(0x7f00)));
    const Ints high = bit_or(bit_and(_mm256_slli_epi32(last, 7), dwords(0x7f0000)),
                             bit_and(_mm256_srli_epi32(last, 1), dwords(0x7f000000)));
    return even_signs(bit_or(low, high));
  }
};

struct UnpackIQ2_S {
  static constexpr TileKind kKind{16, false, 43, 86};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockIQ2_S);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const Turned<PointsOfIQ2_S> points(blocks);
    unpack_nibble_scales(blocks, offsetof(BlockIQ2_S, scales), out);
    for (int i = 0; i < 8; i++) {
      const Ints signs = gather4(blocks + (offsetof(BlockIQ2_S, qs) + 32 + 4 * i));
      put_signed<kKind.bias>(points, i, signs, out);
    }
  }
};

struct UnpackIQ3_S {
  static constexpr TileKind kKind{32, false, 15, 30};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockIQ3_S);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const Turned<PointsOfIQ3_S> points(blocks);
    const Floats d = gather_halves(blocks);
    const Ints scales = gather4(blocks + offsetof(BlockIQ3_S, scales));
    for (int g = 0; g < 8; g++) {
      out.scale(g, with_half(d, nibble_of(scales, g), 2));
      const Ints signs = gather4(blocks + (offsetof(BlockIQ3_S, signs) + 4 * g));
      put_signed<kKind.bias>(points, g, signs, out);
    }
  }
};

}  // namespace sharpi::avx2
