// Unpacks grid points with signs, 8 rows at a time: IQ2_XXS to IQ3_S.
#pragma once
#include <cstddef>

#include "unpack_points.h"

namespace sharpi::avx2 {
namespace {

// Adds the eighth sign to bits 0..6 of each byte, so that the number of signs is even.
inline Ints even_signs(Ints seven) {
  const Ints odd =
      twice(_mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
  const Ints low = shuffle_bytes(odd, low_nibbles(seven));
  const Ints high = shuffle_bytes(odd, high_nibbles(seven));
  return bit_or(seven, bit_xor(low, high));
}
// Does the same for four times seven signs that lie in 28 bits of a dword.
inline Ints even_signs_of_28(Ints x) {
  const Ints low = bit_or(bit_and(x, dwords(0x7f)), bit_and(shl32(x, 1), dwords(0x7f00)));
  const Ints high =
      bit_or(bit_and(shl32(x, 2), dwords(0x7f0000)), bit_and(shl32(x, 3), dwords(0x7f000000)));
  return even_signs(bit_or(low, high));
}

// Applies signs to points: bit c of a row's dword is the sign of column c.
template <int kMost>
struct Signs {
  static constexpr int kBias = kMost;

  // Computes bias + w, or bias - w where the sign is set.
  [[gnu::always_inline]] static void apply(Ints signs, Ints w[8]) {
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
      const Ints one_bit = dwords(k % 2 ? int(0x80402010) : 0x08040201);
      const Ints minus =
          equal8(bit_and(shuffle_bytes(signs, repeat_byte(k / 2)), one_bit), one_bit);
      w[k] = add8(sub8(bit_xor(w[k], minus), minus), bytes(kBias));
    }
  }
  // Multiplies one row with a token's values, which get the signs, so that no bias is needed.
  static constexpr int kBiasOfRow = 0;
  [[gnu::always_inline]] static auto of_row(Ints w, Ints signs) {
    const Ints bit_of_column = qwords(int64_t(0x8040201008040201));
    const Ints minus = equal8(bit_and(signs, bit_of_column), bit_of_column);
    return [=](Ints q) { return multiply_unsigned(w, sub8(bit_xor(q, minus), minus)); };
  }
};

// Reads types that have four times seven signs and a scale of four bits in one dword a part, the
// first at kFirst, then every kStep bytes: d * (scale + 1/2) / kDivisor.
template <class Of, class PointsOf, int kMost, int kFirst, int kStep, int kDivisor>
struct SignsAndScale {
  using Block = Of;
  using Points = PointsOf;
  using Numbers = NumbersInPlace<Points>;
  using Change = Signs<kMost>;
  static constexpr int kGroupColumns = 32;
  Rows first;
  Floats d;
  explicit SignsAndScale(Rows blocks) : first(blocks + kFirst), d(gather_halves(blocks)) {}

  template <class Out>
  [[gnu::always_inline]] Ints begin(int part, Out& out) const {
    const Ints own = gather4(first + kStep * part);
    out.scale(part, with_half(d, shr32(own, 28), 1.f / kDivisor));
    return even_signs_of_28(own);
  }
};
using IQ2_XXS =
    SignsAndScale<BlockIQ2_XXS, PointsOfIQ2_XXS, 43, offsetof(BlockIQ2_XXS, qs) + 4, 8, 4>;
using IQ3_XXS =
    SignsAndScale<BlockIQ3_XXS, PointsOfIQ3_XXS, 62, offsetof(BlockIQ3_XXS, qs) + 64, 4, 2>;

// The 16 scales of 16 columns each, in nibbles at `offset`.
struct NibbleScales {
  Floats d;
  Ints nibbles[2];
  NibbleScales(Rows blocks, size_t offset)
      : d(gather_halves(blocks)),
        nibbles{gather4(blocks + offset), gather4(blocks + (offset + 4))} {}

  template <class Out>
  [[gnu::always_inline]] void put(int part, Out& out) const {
    for (int g = 2 * part; g < 2 * part + 2; g++)
      out.scale(g, with_half(d, nibble_of(nibbles[part / 4], g % 8), 0.25f));
  }
};

struct IQ2_XS {
  using Block = BlockIQ2_XS;
  using Points = PointsOfIQ2_XS;
  using Numbers = NumbersInPlace<Points>;
  using Change = Signs<43>;
  static constexpr int kGroupColumns = 16;
  Rows qs;
  NibbleScales scales;
  explicit IQ2_XS(Rows blocks)
      : qs(blocks + offsetof(Block, qs)), scales(blocks, offsetof(Block, scales)) {}

  template <class Out>
  [[gnu::always_inline]] Ints begin(int part, Out& out) const {
    scales.put(part, out);
    return signs(gather4(qs + 8 * part), gather4(qs + (8 * part + 4)));
  }

 private:
  // Collects the signs from the top seven bits of four 16-bit codes.
  static Ints signs(Ints first, Ints last) {
    const Ints low =
        bit_or(bit_and(shr32(first, 9), dwords(0x7f)), bit_and(shr32(first, 17), dwords(0x7f00)));
    const Ints high = bit_or(bit_and(shl32(last, 7), dwords(0x7f0000)),
                             bit_and(shr32(last, 1), dwords(0x7f000000)));
    return even_signs(bit_or(low, high));
  }
};

struct IQ2_S {
  using Block = BlockIQ2_S;
  using Points = PointsOfIQ2_S;
  using Numbers = NumbersMade<Points>;
  using Change = Signs<43>;
  static constexpr int kGroupColumns = 16;
  Rows qs;
  NibbleScales scales;
  Ints qh[2];  // a byte of each part
  explicit IQ2_S(Rows blocks)
      : qs(blocks + offsetof(Block, qs)),
        scales(blocks, offsetof(Block, scales)),
        qh{gather4(blocks + offsetof(Block, qh)), gather4(blocks + (offsetof(Block, qh) + 4))} {}

  template <class Out>
  [[gnu::always_inline]] Ints begin(int part, Out& out) const {
    scales.put(part, out);
    return gather4(qs + (32 + 4 * part));
  }
  Ints low(int part, int) const { return gather4(qs + 4 * part); }
  Ints high(int part, int) const {
    return fields_as_bytes<2, 2>(shr32(qh[part / 4], part % 4 * 8));
  }
};

struct IQ3_S {
  using Block = BlockIQ3_S;
  using Points = PointsOfIQ3_S;
  using Numbers = NumbersMade<Points>;
  using Change = Signs<15>;
  static constexpr int kGroupColumns = 32;
  Rows qs, signs;
  Floats d;
  Ints scales, qh[2];  // a byte of each part
  explicit IQ3_S(Rows blocks)
      : qs(blocks + offsetof(Block, qs)),
        signs(blocks + offsetof(Block, signs)),
        d(gather_halves(blocks)),
        scales(gather4(blocks + offsetof(Block, scales))),
        qh{gather4(blocks + offsetof(Block, qh)), gather4(blocks + (offsetof(Block, qh) + 4))} {}

  template <class Out>
  [[gnu::always_inline]] Ints begin(int part, Out& out) const {
    out.scale(part, with_half(d, nibble_of(scales, part), 2));
    return gather4(signs + 4 * part);
  }
  Ints low(int part, int i) const { return gather4(qs + (8 * part + 4 * i)); }
  Ints high(int part, int i) const {
    return fields_as_bytes<1, 1>(shr32(qh[part / 4], part % 4 * 8 + 4 * i));
  }
};

using UnpackIQ2_XXS = UnpackPoints<IQ2_XXS>;
using UnpackIQ2_XS = UnpackPoints<IQ2_XS>;
using UnpackIQ2_S = UnpackPoints<IQ2_S>;
using UnpackIQ3_XXS = UnpackPoints<IQ3_XXS>;
using UnpackIQ3_S = UnpackPoints<IQ3_S>;

}  // namespace
}  // namespace sharpi::avx2
