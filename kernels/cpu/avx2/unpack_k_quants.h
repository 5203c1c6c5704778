// Blocks of 256, 8 rows of them into a quarter of a tile: Q4_K, Q5_K, Q6_K.
#pragma once
#include <cstddef>

#include "quant_blocks.h"
#include "tile.h"
#include "transpose.h"

namespace sharpi::avx2 {

// The low four bits of every byte of a, joined by the bits of b in `mask`.
inline Ints join(Ints a, Ints b, int mask) {
  return bit_or(low_nibbles(a), bit_and(b, bytes(mask)));
}

// to[g][rows] = d * byte g of four-byte words, for all 4 * kWords groups.
template <int kWords>
inline void store_products(Floats d, const Ints words[kWords], float to[][kTileRows], int part) {
  for (int g = 0; g < 4 * kWords; g++) {
    const Ints x = bit_and(_mm256_srli_epi32(words[g / 4], g % 4 * 8), dwords(255));
    _mm256_store_ps(to[g] + part * kLanes, _mm256_mul_ps(d, to_float(x)));
  }
}
template <int kWords>
inline void store_signed_products(Floats d, const Ints words[kWords], float to[][kTileRows],
                                  int part) {
  for (int g = 0; g < 4 * kWords; g++) {
    const Ints x = _mm256_srai_epi32(_mm256_slli_epi32(words[g / 4], 24 - g % 4 * 8), 24);
    _mm256_store_ps(to[g] + part * kLanes, _mm256_mul_ps(d, to_float(x)));
  }
}

// d, dmin and the 12 bytes of 6-bit scales and mins that Q4_K and Q5_K begin with.
inline void unpack_six_bit_scales(Rows blocks, Tile& tile, int part) {
  Ints x[4];
  transpose16(blocks, x);
  const auto six_bits = [](Ints low, Ints high) { return join(low, shift_bits<4>(high, 6), 0x30); };
  const Ints scales[2] = {bit_and(x[1], bytes(63)), six_bits(x[3], x[1])};
  const Ints mins[2] = {bit_and(x[2], bytes(63)), six_bits(_mm256_srli_epi16(x[3], 4), x[2])};
  store_products<2>(low_half(x[0]), scales, tile.scale, part);
  const Floats minus_dmin = _mm256_sub_ps(_mm256_setzero_ps(), high_half(x[0]));
  store_products<2>(minus_dmin, mins, tile.offset, part);
}

struct UnpackQ4_K {
  static constexpr TileKind kKind{32, true, 0, 15};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockQ4_K);

  static void unpack(Rows blocks, int, Tile& tile, int part) {
    unpack_six_bit_scales(blocks, tile, part);
    for (int piece = 0; piece < 8; piece++) {  // of 16 bytes: half of two groups
      const int step = piece / 2 * 16 + piece % 2 * 4;
      Ints x[4];
      transpose16(blocks + (offsetof(BlockQ4_K, qs) + 16 * piece), x);
      for (int k = 0; k < 4; k++) {
        store(tile.w[step + k][part], low_nibbles(x[k]));
        store(tile.w[step + 8 + k][part], high_nibbles(x[k]));
      }
    }
  }
};

struct UnpackQ5_K {
  static constexpr TileKind kKind{32, true, 0, 31};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockQ5_K);

  static void unpack(Rows blocks, int, Tile& tile, int part) {
    unpack_six_bit_scales(blocks, tile, part);
    for (int side = 0; side < 2; side++) {  // half of every group
      Ints fifth[4];                        // bit g: group g's
      transpose16(blocks + (offsetof(BlockQ5_K, qh) + 16 * side), fifth);
#pragma GCC unroll 4
      for (int pair = 0; pair < 4; pair++) {
        Ints x[4];
        transpose16(blocks + (offsetof(BlockQ5_K, qs) + 32 * pair + 16 * side), x);
        for (int k = 0; k < 4; k++) {
          uint8_t(*w)[kParts][32] = tile.w + 16 * pair + 4 * side + k;
          store(w[0][part], join(x[k], shift_bits<4>(fifth[k], 2 * pair), 16));
          store(w[8][part],
                join(_mm256_srli_epi16(x[k], 4), shift_bits<4>(fifth[k], 2 * pair + 1), 16));
        }
      }
    }
  }
};

struct UnpackQ6_K {
  static constexpr TileKind kKind{16, false, 32, 63};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockQ6_K);

  static void unpack(Rows blocks, int, Tile& tile, int part) {
    Ints scales[4];
    transpose16(blocks + offsetof(BlockQ6_K, scales), scales);
    const Floats d = high_half(gather4(blocks + (offsetof(BlockQ6_K, d) - 2)));
    store_signed_products<4>(d, scales, tile.scale, part);
    for (int piece = 0; piece < 4; piece++) {  // 16 bytes of qh: 4 x 16 columns, 32 apart
      const int half = piece / 2, side = piece % 2;
      Ints top[4];
      transpose16(blocks + (offsetof(BlockQ6_K, qh) + 16 * piece), top);
#pragma GCC unroll 2
      for (int i = 0; i < 2; i++) {  // low nibbles: columns from 32 * i; high nibbles: 64 later
        Ints x[4];
        transpose16(blocks + (64 * half + 32 * i + 16 * side), x);
        for (int k = 0; k < 4; k++) {
          uint8_t(*w)[kParts][32] = tile.w + 32 * half + 8 * i + 4 * side + k;
          store(w[0][part], join(x[k], shift_bits<4>(top[k], 2 * i), 0x30));
          store(w[16][part],
                join(_mm256_srli_epi16(x[k], 4), shift_bits<4>(top[k], 4 + 2 * i), 0x30));
        }
      }
    }
  }
};

}  // namespace sharpi::avx2
