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
  struct Eight {
    const Ints w;
    [[gnu::always_inline]] Eight(Ints w, Ints spread) : w(add8(w, spread)) {}
    [[gnu::always_inline]] static Ints of(Ints q, Ints) { return q; }
  };
  static Ints last_bytes(Ints moves) { return moves; }
};

// Returns d * (2 * scale + 1) / 8 of a quarter of d; the scale is in the lowest three bits.
inline Floats eighth_scale(Floats quarter, Ints scale) {
  return with_half(quarter, bit_and(scale, dwords(7)));
}

struct IQ1_S {
  using Block = BlockIQ1_S;
  using Points = PointsOfIQ1_S;
  using Numbers = NumbersMade<Points>;
  using Change = Moves;
  static constexpr int kGroupColumns = 32;
  Floats quarter;
  Ints qs[kParts], qh[4];  // qh: of two parts each
  [[gnu::always_inline]] explicit IQ1_S(Rows blocks)
      : quarter(gather_halves(blocks) * floats(0.25f)) {
    load_dwords<kParts>(blocks + offsetof(Block, qs), qs);
    transpose16(blocks + offsetof(Block, qh), qh);
  }

  Ints changes(int part) const { return and_not(sar32(own(part), 31), bytes(2)); }
  template <class Out>
  [[gnu::always_inline]] void scales(int part, Out& out) const {
    out.scale(part, eighth_scale(quarter, shr32(own(part), 28)));
  }
  Ints low(int part, int) const { return qs[part]; }
  Ints high(int part, int) const {
    return fields_as_bytes<3, 3>(shr32(qh[part / 2], part % 2 * 16));
  }

 private:
  // Returns the part's 16 bits in the high half.
  Ints own(int part) const { return part % 2 ? qh[part / 2] : shl32(qh[part / 2], 16); }
};

struct IQ1_M {
  using Block = BlockIQ1_M;
  using Points = PointsOfIQ1_M;
  using Numbers = NumbersMade<Points>;
  using Change = Moves;
  static constexpr int kGroupColumns = 16;
  Ints qs[kParts], qh[4], fields[2];  // qh: two bytes a part; fields: four words, each with four
                                      // scales of three bits and four bits of d
  Floats quarter;
  [[gnu::always_inline]] explicit IQ1_M(Rows blocks) {
    load_dwords<kParts>(blocks + offsetof(Block, qs), qs);
    transpose16(blocks + offsetof(Block, qh), qh);
    const Rows at = blocks + offsetof(Block, scales);
    fields[0] = gather4(at), fields[1] = gather4(at + 4);
    const Ints low = bit_or(bit_and(shr32(fields[0], 12), dwords(0xf)),
                            bit_and(shr32(fields[0], 24), dwords(0xf0)));
    const Ints high = bit_or(bit_and(shr32(fields[1], 4), dwords(0xf00)),
                             bit_and(shr32(fields[1], 16), dwords(0xf000)));
    quarter = low_half(bit_or(low, high)) * floats(0.25f);
  }

  // Bit 3 of each of four nibbles moves 8 columns down.
  Ints changes(int part) const { return shr16(and_not(nibbles(part), bytes(8)), 2); }
  template <class Out>
  [[gnu::always_inline]] void scales(int part, Out& out) const {
#pragma GCC unroll 2
    for (int g = 2 * part; g < 2 * part + 2; g++) {
      const int from = g / 4 % 2 * 16 + g % 4 * 3;
      out.scale(g, eighth_scale(quarter, shr32(fields[part / 4], from)));
    }
  }
  Ints low(int part, int) const { return qs[part]; }
  Ints high(int part, int) const { return bit_and(nibbles(part), bytes(7)); }

 private:
  // Returns the four nibbles of a part's two bytes, each as a byte.
  Ints nibbles(int part) const {
    const Ints each = dwords(part % 2 ? 0x03030202 : 0x01010000);
    const Ints both = shuffle_bytes(
        qh[part / 2], add8(each, twice(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c))));
    return bit_or(bit_and(both, dwords(0x000f000f)), bit_and(shr16(both, 4), dwords(0x0f000f00)));
  }
};

using UnpackIQ1_S = UnpackPoints<IQ1_S>;
using UnpackIQ1_M = UnpackPoints<IQ1_M>;

}  // namespace
}  // namespace sharpi::avx2
