// Blocks of 32 with one scale, 8 rows at a time: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.
#pragma once
#include <cstddef>

#include "quant_blocks.h"
#include "token_block.h"
#include "transpose.h"

namespace sharpi::avx2 {
namespace {

// A type here: scale() of one block of 8 rows, and values(), four of each row in a register.
template <class Type>
struct UnpackBlocksOf32 {
  static constexpr TileKind kKind = Type::kKind;
  static constexpr int kBlockColumns = 32, kBlockBytes = sizeof(typename Type::Block);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int num_parts, Out& out) {
#pragma GCC unroll 1
    for (int g = 0; g < num_parts; g++, blocks.start += kBlockBytes) {
      Ints w[8];
      Type::values(blocks, w);
      out.scale(g, Type::scale(blocks));
      if (kKind.has_offsets) out.offset(g, gather_halves(blocks + 2));
      put_part(g, w, out);
    }
  }
};

// Values 0..15 are low nibbles, 16..31 high nibbles of 16 bytes.
inline void split_nibbles(Rows packed, Ints w[8]) {
  Ints x[4];
  transpose16(packed, x);
  for (int k = 0; k < 4; k++) w[k] = low_nibbles(x[k]), w[4 + k] = high_nibbles(x[k]);
}

struct Q4_0 {
  using Block = BlockQ4_0;
  static constexpr TileKind kKind{32, false, 8, 15};
  static Floats scale(Rows block) { return gather_halves(block); }
  static void values(Rows block, Ints w[8]) { split_nibbles(block + offsetof(Block, qs), w); }
};

struct Q4_1 {
  using Block = BlockQ4_1;
  static constexpr TileKind kKind{32, true, 0, 15};
  static Floats scale(Rows block) { return gather_halves(block); }
  static void values(Rows block, Ints w[8]) { split_nibbles(block + offsetof(Block, qs), w); }
};

// Adds bit i of a row's dword, as 16, to its value i.
inline void add_fifth_bits(Ints bits, Ints w[8]) {
#pragma GCC unroll 8
  for (int k = 0; k < 8; k++) {
    const Ints one_bit = dwords(k % 2 ? int(0x80402010) : 0x08040201);
    const Ints spread = bit_and(_mm256_shuffle_epi8(bits, repeat_byte(k / 2)), one_bit);
    w[k] = bit_or(w[k], bit_and(_mm256_cmpeq_epi8(spread, one_bit), bytes(16)));
  }
}

struct Q5_0 {
  using Block = BlockQ5_0;
  static constexpr TileKind kKind{32, false, 16, 31};
  static Floats scale(Rows block) { return gather_halves(block); }
  static void values(Rows block, Ints w[8]) {
    split_nibbles(block + offsetof(Block, qs), w);
    add_fifth_bits(gather4(block + offsetof(Block, qh)), w);
  }
};

struct Q5_1 {
  using Block = BlockQ5_1;
  static constexpr TileKind kKind{32, true, 0, 31};
  static Floats scale(Rows block) { return gather_halves(block); }
  static void values(Rows block, Ints w[8]) {
    split_nibbles(block + offsetof(Block, qs), w);
    add_fifth_bits(gather4(block + offsetof(Block, qh)), w);
  }
};

struct Q8_0 {
  using Block = BlockQ8_0;
  static constexpr TileKind kKind{32, false, 0, 128};
  static Floats scale(Rows block) { return gather_halves(block); }
  static void values(Rows block, Ints w[8]) {
    transpose16(block + offsetof(Block, qs), w);
    transpose16(block + (offsetof(Block, qs) + 16), w + 4);
  }
};

}  // namespace
}  // namespace sharpi::avx2
