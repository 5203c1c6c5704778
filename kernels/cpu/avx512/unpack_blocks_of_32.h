// Unpacks blocks of 32 with one scale, 16 rows at a time: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.
#pragma once
#include <cstddef>

#include "quant_blocks.h"
#include "tile.h"
#include "transpose.h"

namespace sharpi::avx512 {
namespace {

// Splits 16 bytes: values 0..15 are the low nibbles, 16..31 the high ones.
[[gnu::always_inline]] inline void split_nibbles(Rows packed, Ints w[8]) {
  Ints x[4];
  transpose16(packed, x);
  for (int k = 0; k < 4; k++) w[k] = low_nibbles(x[k]), w[4 + k] = high_nibbles(x[k]);
}

// Adds 16 to value i where bit i of its row's dword is set.
[[gnu::always_inline]] inline void add_fifth_bits(Ints bits, Ints w[8]) {
  const Ints one_of_four = dwords(0x08040201), other_four = dwords(int(0x80402010));
#pragma GCC unroll 8
  for (int k = 0; k < 8; k++) {
    const Ints spread = _mm512_shuffle_epi8(bits, repeat_byte(k / 2));
    const __mmask64 set = _mm512_test_epi8_mask(spread, k % 2 ? other_four : one_of_four);
    w[k] = _mm512_mask_add_epi8(w[k], set, w[k], bytes(16));
  }
}

// A type has values(), which are at least 0, of one block, and scale() from the block's first four
// bytes.
template <class Type>
struct UnpackBlocksOf32 {
  static constexpr TileKind kKind = Type::kKind;
  static constexpr int kBlockColumns = 32, kBlockBytes = sizeof(typename Type::Block);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int num_parts, Out& out) {
#pragma GCC unroll 1
    for (int g = 0; g < num_parts; g++, blocks = blocks + kBlockBytes) {
      const Ints start = gather4(blocks);
      out.scale(g, Type::scale(start));
      if (kKind.has_offsets) out.offset(g, high_half(start));
      Ints w[8];
      Type::values(blocks, w);
      out.weights(g, w);
    }
  }
};

struct Q4_0 {
  using Block = BlockQ4_0;
  static constexpr TileKind kKind{32, false, 8};
  static Floats scale(Ints start) { return low_half(start); }
  static void values(Rows block, Ints w[8]) { split_nibbles(block + offsetof(Block, qs), w); }
};

struct Q4_1 {
  using Block = BlockQ4_1;
  static constexpr TileKind kKind{32, true, 0};
  static Floats scale(Ints start) { return low_half(start); }
  static void values(Rows block, Ints w[8]) { split_nibbles(block + offsetof(Block, qs), w); }
};

struct Q5_0 {
  using Block = BlockQ5_0;
  static constexpr TileKind kKind{32, false, 16};
  static Floats scale(Ints start) { return low_half(start); }
  static void values(Rows block, Ints w[8]) {
    split_nibbles(block + offsetof(Block, qs), w);
    add_fifth_bits(gather4(block + offsetof(Block, qh)), w);
  }
};

struct Q5_1 {
  using Block = BlockQ5_1;
  static constexpr TileKind kKind{32, true, 0};
  static Floats scale(Ints start) { return low_half(start); }
  static void values(Rows block, Ints w[8]) {
    split_nibbles(block + offsetof(Block, qs), w);
    add_fifth_bits(gather4(block + offsetof(Block, qh)), w);
  }
};

struct Q8_0 {
  using Block = BlockQ8_0;
  static constexpr TileKind kKind{32, false, 128};
  static Floats scale(Ints start) { return low_half(start); }
  static void values(Rows block, Ints w[8]) {
    transpose32(block + offsetof(Block, qs), w);
    for (int k = 0; k < 8; k++) w[k] = _mm512_xor_si512(w[k], bytes(128));
  }
};

}  // namespace
}  // namespace sharpi::avx512
