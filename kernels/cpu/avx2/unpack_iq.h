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
      w[k] =
          add8(with_signs(w[k], shuffle_bytes(signs, repeat_byte(k / 2)), one_bit), bytes(kBias));
    }
  }
  // Multiplies one row with a token's values, which get the signs, so that no bias is needed.
  static constexpr int kBiasOfRow = 0;
  [[gnu::always_inline]] static auto of_row(Ints w, Ints signs) {
    const Ints bit_of_column = qwords(int64_t(0x8040201008040201));
    return [=](Ints q) { return multiply_unsigned(w, with_signs(q, signs, bit_of_column)); };
  }

 private:
  // Returns x, or -x where `signs` has the bit of one_bit: any bit makes a sum with 127 negative.
  [[gnu::always_inline]] static Ints with_signs(Ints x, Ints signs, Ints one_bit) {
    return sign8(x, add8(bit_and(signs, one_bit), bytes(127)));
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
  Floats d;
  Ints own[kParts];
  [[gnu::always_inline]] explicit SignsAndScale(Rows blocks) : d(gather_halves(blocks)) {
    constexpr int kEach = kStep / 4,
                  kLast = kEach - 1;  // dwords of a part, and which of them it is
    Ints all[kParts * kEach];
    load_dwords<kParts * kEach>(blocks + (kFirst - 4 * kLast), all);
#pragma GCC unroll 8
    for (int part = 0; part < kParts; part++) own[part] = all[part * kEach + kLast];
  }

  Ints changes(int part) const { return even_signs_of_28(own[part]); }
  template <class Out>
  [[gnu::always_inline]] void scales(int part, Out& out) const {
    out.scale(part, with_half(d, shr32(own[part], 28), 1.f / kDivisor));
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
#pragma GCC unroll 2
    for (int g = 2 * part; g < 2 * part + 2; g++)
      out.scale(g, with_half(d, nibble_of(nibbles[part / 4], g % 8), 0.25f));
  }
};

struct IQ2_XS {
  using Block = BlockIQ2_XS;
  using Points = PointsOfIQ2_XS;
  using Numbers = NumbersInWords<Points, offsetof(Block, qs), 511>;
  using Change = Signs<43>;
  static constexpr int kGroupColumns = 16;
  NibbleScales nibbles;
  Ints codes[2 * kParts];  // two a dword
  [[gnu::always_inline]] explicit IQ2_XS(Rows blocks) : nibbles(blocks, offsetof(Block, scales)) {
    load_dwords<2 * kParts>(blocks + offsetof(Block, qs), codes);
  }

  Ints changes(int part) const { return signs(codes[2 * part], codes[2 * part + 1]); }
  template <class Out>
  [[gnu::always_inline]] void scales(int part, Out& out) const {
    nibbles.put(part, out);
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
  NibbleScales nibbles;
  Ints qs[kParts], signs[kParts], qh[2];  // qh: a byte of each part
  [[gnu::always_inline]] explicit IQ2_S(Rows blocks)
      : nibbles(blocks, offsetof(Block, scales)),
        qh{gather4(blocks + offsetof(Block, qh)), gather4(blocks + (offsetof(Block, qh) + 4))} {
    load_dwords<kParts>(blocks + offsetof(Block, qs), qs);
    load_dwords<kParts>(blocks + (offsetof(Block, qs) + 32), signs);
  }

  Ints changes(int part) const { return signs[part]; }
  template <class Out>
  [[gnu::always_inline]] void scales(int part, Out& out) const {
    nibbles.put(part, out);
  }
  Ints low(int part, int) const { return qs[part]; }
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
  Floats d;
  Ints qs[2 * kParts], signs[kParts], nibbles, qh[2];  // a scale and a byte of each part
  [[gnu::always_inline]] explicit IQ3_S(Rows blocks)
      : d(gather_halves(blocks)),
        nibbles(gather4(blocks + offsetof(Block, scales))),
        qh{gather4(blocks + offsetof(Block, qh)), gather4(blocks + (offsetof(Block, qh) + 4))} {
    load_dwords<2 * kParts>(blocks + offsetof(Block, qs), qs);
    load_dwords<kParts>(blocks + offsetof(Block, signs), signs);
  }

  Ints changes(int part) const { return signs[part]; }
  template <class Out>
  [[gnu::always_inline]] void scales(int part, Out& out) const {
    out.scale(part, with_half(d, nibble_of(nibbles, part), 2));
  }
  Ints low(int part, int i) const { return qs[2 * part + i]; }
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
