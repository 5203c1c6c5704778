// Unpacks weights of few bits with one scale a block, 8 rows at a time: Q1_0, Q2_0, and TQ1_0,
// which has five digits of base 3 in a byte.
#pragma once
#include <cstddef>

#include "quant_blocks.h"
#include "token_block.h"
#include "transpose.h"

namespace sharpi::avx2 {
namespace {

// A Type has values(), which unpacks the 32 columns of part `part` from a block's bytes; a block
// has kParts of them.
template <class Type>
struct UnpackBitsInOrder {
  static constexpr int kPartsAtOnce = 1;  // each part is finished at once
  using Block = typename Type::Block;
  static constexpr TileKind kKind{32, false, 1, 3};
  static constexpr int kBlockColumns = 32 * Type::kParts, kBlockBytes = sizeof(Block);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int num_parts, Out& out) {
#pragma GCC unroll 1
    for (int first = 0; first < num_parts; first += Type::kParts, blocks.start += kBlockBytes) {
      Ints x[4];
      transpose16(blocks + offsetof(Block, qs), x);
      const Floats d = gather_halves(blocks);
#pragma GCC unroll 4
      for (int part = 0; part < Type::kParts; part++) {
        Ints w[8];
        Type::values(x, part, w);
        out.scale(first + part, d);
        out.part(first + part, w);
      }
    }
  }
};

// Unpacks 2 * bit.
struct Q1_0 {
  using Block = BlockQ1_0;
  static constexpr int kParts = 4;
  static void values(const Ints x[4], int part, Ints w[8]) {
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
      const Ints one_bit = dwords(k % 2 ? int(0x80402010) : 0x08040201);
      w[k] = where_bit(shuffle_bytes(x[part], repeat_byte(k / 2)), one_bit, 2);
    }
  }
};

struct Q2_0 {
  using Block = BlockQ2_0;
  static constexpr int kParts = 2;
  static void values(const Ints x[4], int part, Ints w[8]) {
    const Ints values = twice(_mm_setr_epi8(0, 1, 2, 3, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0));
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
      const Ints byte = shuffle_bytes(x[2 * part + k / 4], repeat_byte(k % 4));
      const Ints last = bit_and(shr32(byte, 4), dwords(0x0c030000));  // codes in bits 4 to 7
      w[k] = shuffle_bytes(values, bit_or(bit_and(byte, dwords(0x0c03)), last));
    }
  }
};

// A byte is a fraction in base 3: these return its first digit, and the fraction after that.
inline Ints first_digit(Ints x) {
  const Ints above_third = subtract_u8(x, bytes(85)), above_two = subtract_u8(x, bytes(170));
  return add8(min_u8(above_third, bytes(1)), min_u8(above_two, bytes(1)));
}
inline Ints later_digits(Ints x) { return add8(x, add8(x, x)); }

// Takes the next digit of every byte of kCount registers.
template <int kCount>
[[gnu::always_inline]] inline void take_digits(Ints x[kCount], Ints w[kCount]) {
  for (int k = 0; k < kCount; k++) w[k] = first_digit(x[k]), x[k] = later_digits(x[k]);
}

struct UnpackTQ1_0 {
  static constexpr TileKind kKind{32, false, 1, 2};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockTQ1_0);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const Floats d = gather_halves(blocks + offsetof(BlockTQ1_0, d));
    for (int g = 0; g < 8; g++) out.scale(g, d);
    Ints x[8], w[4];
    for (int side = 0; side < 2; side++)
      transpose16(blocks + (offsetof(BlockTQ1_0, qs) + 16 * side), x + 4 * side);
#pragma GCC unroll 5
    for (int digit = 0; digit < 5; digit++) {
      for (int side = 0; side < 2; side++) {
        take_digits<4>(x + 4 * side, w);
        out.weights(2 * digit + side, w);
      }
      out.finish(digit);
    }
    transpose16(blocks + (offsetof(BlockTQ1_0, qs) + 32), x);
#pragma GCC unroll 5
    for (int digit = 0; digit < 5; digit++) {
      take_digits<4>(x, w);
      out.weights(10 + digit, w);
      if (digit % 2) out.finish(5 + digit / 2);
    }
    Ints last = gather4(blocks + offsetof(BlockTQ1_0, qh));
    for (int digit = 0; digit < 4; digit++) take_digits<1>(&last, w + digit);
    out.weights(15, w);
    out.finish(7);
  }
};

}  // namespace
}  // namespace sharpi::avx2
