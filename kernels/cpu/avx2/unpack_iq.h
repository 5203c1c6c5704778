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
  return bit_or(seven, shuffle_bytes(odd, low_nibbles(bit_xor(seven, shr16(seven, 4)))));
}
// Does the same for four times seven signs that lie in 28 bits of a dword.
inline Ints even_signs_of_28(Ints x) {
  const Ints last = bit_and(shl32(x, 2), dwords(0x3fff0000));
  const Ints words = bit_or(bit_and(x, dwords(0x3fff)), last);
  return even_signs(add16(words, bit_and(words, dwords(0x3f803f80))));  // doubles seven of them
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
  // Keeps four rows' points of eight columns. The token's values get the signs, so that no bias is
  // needed.
  static constexpr int kBiasOfRow = 0;
  class Eight {
   public:
    const Ints w;
    // Column c's sign becomes the top bit of its byte: in the first bytes of words bits 0, 2, 4 and
    // 6 count, in the last ones the same of last_bytes().
    [[gnu::always_inline]] Eight(Ints w, Ints spread)
        : w(w), signs_(multiply16(spread, qwords(0x0002'0008'0020'0080))) {}
    [[gnu::always_inline]] Ints of(Ints q, Ints minus_q) const {
      return select(q, minus_q, signs_);
    }

   private:
    const Ints signs_;
  };
  static Ints last_bytes(Ints signs) { return shr16(signs, 1); }

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
  using Numbers = NumbersCopied<Points, offsetof(Block, qs)>;
  using Change = Signs<kMost>;
  static constexpr int kGroupColumns = 32;
  Floats d;
  Ints own[kParts];
  [[gnu::always_inline]] explicit SignsAndScale(Rows blocks)
      : d(gather_halves(blocks) * floats(1.f / kDivisor)) {
    if constexpr (kStep == 4) load_dwords<kParts>(blocks + kFirst, own);
    else load_odd_dwords<kParts>(blocks + (kFirst - 4), own);
  }

  Ints changes(int part) const { return even_signs_of_28(own[part]); }
  template <class Out>
  [[gnu::always_inline]] void scales(int part, Out& out) const {
    out.scale(part, with_half(d, shr32(own[part], 28)));
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
      : d(gather_halves(blocks) * floats(0.25f)),
        nibbles{gather4(blocks + offset), gather4(blocks + (offset + 4))} {}

  template <class Out>
  [[gnu::always_inline]] void put(int part, Out& out) const {
    const Ints two = shr32(nibbles[unsigned(part) / 4], int(unsigned(part) % 4 * 8));
    out.scale(2 * part, with_half(d, nibble_of(two, 0)));
    out.scale(2 * part + 1, with_half(d, nibble_of(two, 1)));
  }
};

struct IQ2_XS {
  using Block = BlockIQ2_XS;
  using Points = PointsOfIQ2_XS;
  using Numbers = NumbersInWords<Points>;
  using Change = Signs<43>;
  static constexpr int kGroupColumns = 16;
  NibbleScales nibbles;
  Ints codes[2 * kParts];  // two a dword
  [[gnu::always_inline]] explicit IQ2_XS(Rows blocks) : nibbles(blocks, offsetof(Block, scales)) {
    load_dwords<2 * kParts>(blocks + offsetof(Block, qs), codes);
  }

  Ints two_numbers(int i) const { return bit_and(codes[i], words(511)); }
  Ints changes(int part) const { return signs(codes[2 * part], codes[2 * part + 1]); }
  template <class Out>
  [[gnu::always_inline]] void scales(int part, Out& out) const {
    nibbles.put(part, out);
  }

 private:
  // Collects the signs from the top seven bits of four 16-bit codes.
  static Ints signs(Ints first, Ints last) {
    const Ints seven = bit_or(shr16(first, 9), bit_and(shr16(last, 1), dwords(0x7f007f00)));
    const __m128i order = _mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
    return even_signs(shuffle_bytes(seven, twice(order)));
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
    const Ints all = shuffle_bytes(qh[part / 4], repeat_byte(part % 4));
    const Ints fields = bit_or(bit_and(all, dwords(0x0c03)),  // those of bits 4 to 7 go to 0 to 3
                               bit_and(shr32(all, 4), dwords(0x0c030000)));
    return look_up(_mm_setr_epi8(0, 1, 2, 3, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0), fields);
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
      : d(gather_halves(blocks) * floats(2)),
        nibbles(gather4(blocks + offsetof(Block, scales))),
        qh{gather4(blocks + offsetof(Block, qh)), gather4(blocks + (offsetof(Block, qh) + 4))} {
    load_dwords<2 * kParts>(blocks + offsetof(Block, qs), qs);
    load_dwords<kParts>(blocks + offsetof(Block, signs), signs);
  }

  Ints changes(int part) const { return signs[part]; }
  template <class Out>
  [[gnu::always_inline]] void scales(int part, Out& out) const {
    out.scale(part, with_half(d, nibble_of(nibbles, part)));
  }
  Ints low(int part, int i) const { return qs[2 * part + i]; }
  Ints high(int part, int i) const {
    const Ints all = shuffle_bytes(qh[part / 4], repeat_byte(part % 4));
    return min_u8(bit_and(all, dwords(i ? int(0x80402010) : 0x08040201)), bytes(1));
  }
};

using UnpackIQ2_XXS = UnpackPoints<IQ2_XXS>;
using UnpackIQ2_XS = UnpackPoints<IQ2_XS>;
using UnpackIQ2_S = UnpackPoints<IQ2_S>;
using UnpackIQ3_XXS = UnpackPoints<IQ3_XXS>;
using UnpackIQ3_S = UnpackPoints<IQ3_S>;

}  // namespace
}  // namespace sharpi::avx2
