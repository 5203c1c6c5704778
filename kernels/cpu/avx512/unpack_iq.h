// Points of grids times signs, 16 rows at a time: IQ2_XXS to IQ3_S.
//
// Points are looked up row by row and written turned (iq_points.h); the rest is done for all rows.
#pragma once
#include <cstddef>

#include "../iq_points.h"
#include "quant_blocks.h"
#include "tile.h"
#include "transpose.h"

namespace sharpi::avx512 {
namespace {

template <class Points>
struct Turned : TurnedPoints<Points, kLanes> {
  [[gnu::noinline]] explicit Turned(Rows blocks) {
    for (int r = 0; r < kLanes; r++) this->set_row(r, blocks.at(r));
  }
  // 32 columns from 32 * part
  [[gnu::always_inline]] void load(int part, Ints w[8]) const {
    for (int k = 0; k < 8; k++) {
      if constexpr (sizeof(typename Points::Point) == 4) {
        w[k] = avx512::load(this->points[8 * part + k]);
      } else {
        const auto* both = this->points[4 * part + k / 2];
        const Floats a = _mm512_load_ps(both), b = _mm512_load_ps(both + 8);
        w[k] = _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88));
        if (k % 2) w[k] = _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xdd));
      }
    }
  }
};

// Four times seven signs of each row, bits 0..6 of each byte, get their eighth: even in number.
[[gnu::always_inline]] inline Ints even_signs(Ints seven) {
  const Ints odd = _mm512_broadcast_i32x4(
      _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
  const Ints low = _mm512_shuffle_epi8(odd, low_nibbles(seven));
  const Ints high = _mm512_shuffle_epi8(odd, high_nibbles(seven));
  return bit_or(seven, _mm512_xor_si512(low, high));
}
// The same from 28 bits in one dword.
[[gnu::always_inline]] inline Ints even_signs_of_28(Ints x) {
  const Ints low = merge_bits(x, dwords(0x7f), _mm512_slli_epi32(x, 1), dwords(0x7f00));
  const Ints high = merge_bits(_mm512_slli_epi32(x, 2), dwords(0x7f0000), _mm512_slli_epi32(x, 3),
                               dwords(0x7f000000));
  return even_signs(bit_or(low, high));
}

// For shuffles: byte i of every dword, four times.
[[gnu::always_inline]] inline Ints repeat_byte(int i) {
  const __m128i first = _mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c);
  return _mm512_broadcast_i32x4(_mm_add_epi8(first, _mm_set1_epi8(char(i))));
}

// w = bias + or - w; bit i of a row's dword is the sign of its value i.
[[gnu::always_inline]] inline void apply_signs(Ints signs, int bias, Ints w[8]) {
#pragma GCC unroll 8
  for (int k = 0; k < 8; k++) {
    const Ints spread = _mm512_shuffle_epi8(signs, repeat_byte(k / 2));
    const __mmask64 minus =
        _mm512_test_epi8_mask(spread, dwords(k % 2 ? int(0x80402010) : 0x08040201));
    w[k] = _mm512_mask_sub_epi8(_mm512_add_epi8(bytes(bias), w[k]), minus, bytes(bias), w[k]);
  }
}

// Part `part`, with its signs.
template <int kBias, class Points, class Out>
[[gnu::always_inline]] inline void put_signed(const Points& points, int part, Ints signs,
                                              Out& out) {
  Ints w[8];
  points.load(part, w);
  apply_signs(signs, kBias, w);
  out.weights(part, w);
}

// d * (scale + 1/2) * factor
[[gnu::always_inline]] inline Floats with_half(Floats d, Ints scale, float factor) {
  const Floats x = _mm512_add_ps(to_float(scale), _mm512_set1_ps(0.5f));
  return _mm512_mul_ps(_mm512_mul_ps(d, x), _mm512_set1_ps(factor));
}
// The half float that every row's block begins with.
[[gnu::always_inline]] inline Floats first_halves(Rows blocks) { return low_half(gather4(blocks)); }

struct UnpackIQ2_XXS {
  static constexpr TileKind kKind{32, false, 43};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockIQ2_XXS);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const Turned<PointsOfIQ2_XXS> points(blocks);
    Ints qs[16];  // every other one: signs and scale of a part
    for (int half = 0; half < 2; half++)
      transpose32(blocks + (offsetof(BlockIQ2_XXS, qs) + 32 * half), qs + 8 * half);
    const Floats d = first_halves(blocks);
#pragma GCC unroll 1
    for (int part = 0; part < 8; part++) {
      const Ints rest = qs[2 * part + 1];
      out.scale(part, with_half(d, _mm512_srli_epi32(rest, 28), 0.25f));
      put_signed<kKind.bias>(points, part, even_signs_of_28(rest), out);
    }
  }
};

struct UnpackIQ3_XXS {
  static constexpr TileKind kKind{32, false, 62};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockIQ3_XXS);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const Turned<PointsOfIQ3_XXS> points(blocks);
    Ints rest[8];
    transpose32(blocks + (offsetof(BlockIQ3_XXS, qs) + 64), rest);
    const Floats d = first_halves(blocks);
#pragma GCC unroll 1
    for (int part = 0; part < 8; part++) {
      out.scale(part, with_half(d, _mm512_srli_epi32(rest[part], 28), 0.5f));
      put_signed<kKind.bias>(points, part, even_signs_of_28(rest[part]), out);
    }
  }
};

// 16 nibbles at `offset`
template <class Out>
[[gnu::always_inline]] inline void unpack_nibble_scales(Rows blocks, size_t offset, Out& out) {
  const Floats d = first_halves(blocks);
  for (int half = 0; half < 2; half++) {
    const Ints scales = gather4(blocks + (offset + 4 * half));
    for (int i = 0; i < 8; i++) {
      const Ints nibble = bit_and(_mm512_srli_epi32(scales, 4 * i), dwords(15));
      out.scale(8 * half + i, with_half(d, nibble, 0.25f));
    }
  }
}

struct UnpackIQ2_XS {
  static constexpr TileKind kKind{16, false, 43};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockIQ2_XS);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const Turned<PointsOfIQ2_XS> points(blocks);
    unpack_nibble_scales(blocks, offsetof(BlockIQ2_XS, scales), out);
    Ints qs[16];
    for (int half = 0; half < 2; half++)
      transpose32(blocks + (offsetof(BlockIQ2_XS, qs) + 32 * half), qs + 8 * half);
#pragma GCC unroll 1
    for (int part = 0; part < 8; part++)
      put_signed<kKind.bias>(points, part, signs(qs[2 * part], qs[2 * part + 1]), out);
  }

 private:
  // From the top seven bits of four times 16.
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
    unpack_nibble_scales(blocks, offsetof(BlockIQ2_S, scales), out);
    Ints signs[8];
    transpose32(blocks + (offsetof(BlockIQ2_S, qs) + 32), signs);
#pragma GCC unroll 1
    for (int part = 0; part < 8; part++) put_signed<kKind.bias>(points, part, signs[part], out);
  }
};

struct UnpackIQ3_S {
  static constexpr TileKind kKind{32, false, 15};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockIQ3_S);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const Turned<PointsOfIQ3_S> points(blocks);
    const Floats d = first_halves(blocks);
    const Ints scales = gather4(blocks + offsetof(BlockIQ3_S, scales));
    Ints signs[8];
    transpose32(blocks + offsetof(BlockIQ3_S, signs), signs);
    for (int g = 0; g < 8; g++)
      out.scale(g, with_half(d, bit_and(_mm512_srli_epi32(scales, 4 * g), dwords(15)), 2));
#pragma GCC unroll 1
    for (int part = 0; part < 8; part++) put_signed<kKind.bias>(points, part, signs[part], out);
  }
};

}  // namespace
}  // namespace sharpi::avx512
