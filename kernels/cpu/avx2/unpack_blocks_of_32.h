// Blocks of 32 with one scale, 8 rows of them into a quarter of a tile: Q4_0, Q4_1, Q8_0, MXFP4.
#pragma once
#include <cstddef>

#include "quant_blocks.h"
#include "tile.h"
#include "transpose.h"

namespace sharpi::avx2 {

// A type here: values() of one block of 8 rows, as the tile holds them, and set_scale().
template <class Type>
struct UnpackBlocksOf32 {
  static constexpr TileKind kKind = Type::kKind;
  static constexpr int kBlockColumns = 32, kBlockBytes = sizeof(typename Type::Block);

  static void unpack(Rows blocks, int num_parts, Tile& tile, int part) {
#pragma GCC unroll 1
    for (int g = 0; g < num_parts; g++, blocks.start += kBlockBytes) {
      Ints w[8];
      Type::values(blocks, w);
      for (int k = 0; k < 8; k++) store(tile.w[8 * g + k][part], w[k]);
      const Ints start = gather4(blocks);
      _mm256_store_ps(tile.scale[g] + part * kLanes, Type::scale(start));
      if (kKind.has_offsets) _mm256_store_ps(tile.offset[g] + part * kLanes, high_half(start));
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
  static Floats scale(Ints start) { return low_half(start); }
  static void values(Rows block, Ints w[8]) { split_nibbles(block + offsetof(Block, qs), w); }
};

struct Q4_1 {
  using Block = BlockQ4_1;
  static constexpr TileKind kKind{32, true, 0, 15};
  static Floats scale(Ints start) { return low_half(start); }
  static void values(Rows block, Ints w[8]) { split_nibbles(block + offsetof(Block, qs), w); }
};

struct Q8_0 {
  using Block = BlockQ8_0;
  static constexpr TileKind kKind{32, false, 0, 128};
  static Floats scale(Ints start) { return low_half(start); }
  static void values(Rows block, Ints w[8]) {
    transpose16(block + offsetof(Block, qs), w);
    transpose16(block + (offsetof(Block, qs) + 16), w + 4);
  }
};

struct MXFP4 {
  using Block = BlockMXFP4;
  static constexpr TileKind kKind{32, false, 12, 24};
  // 2^(e - 128), half of what the exponent says since the values are doubled; subnormal below 2.
  static Floats scale(Ints start) {
    const Ints e = bit_and(start, dwords(255));
    const Ints normal = _mm256_slli_epi32(_mm256_sub_epi32(e, dwords(1)), 23);
    const Ints subnormal = _mm256_sllv_epi32(dwords(0x00200000), e);
    return _mm256_castsi256_ps(
        _mm256_blendv_epi8(normal, subnormal, _mm256_cmpgt_epi32(dwords(2), e)));
  }
  static void values(Rows block, Ints w[8]) {
    // Twice the values of an E2M1 float, plus 12.
    const Ints table = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    split_nibbles(block + offsetof(Block, qs), w);
    for (int k = 0; k < 8; k++) w[k] = _mm256_shuffle_epi8(table, w[k]);
  }
};

}  // namespace sharpi::avx2
