// Unpacks points of -1, 0 and 1, moved by an eighth, 8 rows at a time: IQ1_S, IQ1_M.
#pragma once
#include "unpack_iq.h"

namespace sharpi::avx2 {
namespace {

// Moves points, which are 8 + 8 * value: byte i of a row's dword, 0 or 2, is added to columns
// 8i..8i+7. With the bias of 9 that moves them down or up by one.
struct Moves {
  static constexpr int kBias = 9, kBiasOfRow = 9;

  [[gnu::always_inline]] static void apply(Ints moves, Ints w[8]) {
    for (int k = 0; k < 8; k++) w[k] = add8(w[k], shuffle_bytes(moves, repeat_byte(k / 2)));
  }
  [[gnu::always_inline]] static auto of_row(Ints w, Ints moves) {
    const Ints moved = add8(w, moves);
    return [=](Ints q) { return multiply_unsigned(moved, q); };
  }
};

// Returns d * (2 * scale + 1) / 8; the scale is in the lowest three bits.
inline Floats eighth_scale(Floats d, Ints scale) {
  return with_half(d, bit_and(scale, dwords(7)), 0.25f);
}

struct IQ1_S {
  using Block = BlockIQ1_S;
  using Points = PointsOfIQ1_S;
  using Numbers = NumbersMade<Points>;
  using Change = Moves;
  static constexpr int kGroupColumns = 32;
  Rows qs;
  Floats d;
  Ints qh[4];  // of two parts each
  explicit IQ1_S(Rows blocks) : qs(blocks + offsetof(Block, qs)), d(gather_halves(blocks)) {
    transpose16(blocks + offsetof(Block, qh), qh);
  }

  template <class Out>
  [[gnu::always_inline]] Ints begin(int part, Out& out) const {
    const Ints own = part % 2 ? qh[part / 2] : shl32(qh[part / 2], 16);
    out.scale(part, eighth_scale(d, shr32(own, 28)));
    return and_not(sar32(own, 31), bytes(2));
  }
  Ints low(int part, int) const { return gather4(qs + 4 * part); }
  Ints high(int part, int) const {
    return fields_as_bytes<3, 3>(shr32(qh[part / 2], part % 2 * 16));
  }
};

struct IQ1_M {
  using Block = BlockIQ1_M;
  using Points = PointsOfIQ1_M;
  using Numbers = NumbersMade<Points>;
  using Change = Moves;
  static constexpr int kGroupColumns = 16;
  Rows qs;
  Ints qh[4], scales[2];  // qh: two bytes a part; scales: four words, each with four scales of
                          // three bits and four bits of d
  Floats d;
  explicit IQ1_M(Rows blocks) : qs(blocks + offsetof(Block, qs)) {
    transpose16(blocks + offsetof(Block, qh), qh);
    const Rows at = blocks + offsetof(Block, scales);
    scales[0] = gather4(at), scales[1] = gather4(at + 4);
    const Ints low = bit_or(bit_and(shr32(scales[0], 12), dwords(0xf)),
                            bit_and(shr32(scales[0], 24), dwords(0xf0)));
    const Ints high = bit_or(bit_and(shr32(scales[1], 4), dwords(0xf00)),
                             bit_and(shr32(scales[1], 16), dwords(0xf000)));
    d = low_half(bit_or(low, high));
  }

  template <class Out>
  [[gnu::always_inline]] Ints begin(int part, Out& out) const {
    for (int g = 2 * part; g < 2 * part + 2; g++) {
      const int from = g / 4 % 2 * 16 + g % 4 * 3;
      out.scale(g, eighth_scale(d, shr32(scales[part / 4], from)));
    }
    return moves(own(part));
  }
  Ints low(int part, int) const { return gather4(qs + 4 * part); }
  Ints high(int part, int) const { return fields_as_bytes<3, 4>(own(part)); }

 private:
  Ints own(int part) const { return shr32(qh[part / 2], part % 2 * 16); }
  // Returns the moves of 32 columns: bit 3 of each of four nibbles moves 8 columns down.
  static Ints moves(Ints nibbles) {
    const Ints low =
        bit_or(bit_and(shr32(nibbles, 2), dwords(0x2)), bit_and(shl32(nibbles, 2), dwords(0x200)));
    const Ints high = bit_or(bit_and(shl32(nibbles, 6), dwords(0x20000)),
                             bit_and(shl32(nibbles, 10), dwords(0x2000000)));
    return bit_xor(bit_or(low, high), bytes(2));
  }
};

using UnpackIQ1_S = UnpackPoints<IQ1_S>;
using UnpackIQ1_M = UnpackPoints<IQ1_M>;

}  // namespace
}  // namespace sharpi::avx2
