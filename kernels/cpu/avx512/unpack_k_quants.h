// Super-blocks of 256 with packed scales, 16 rows of them into half a tile: Q2_K, Q3_K, Q4_K, Q5_K,
// Q6_K.
//
// Fields are turned first (transpose.h), so that one operation splits the bits of all rows.
#pragma once
#include <cstddef>

#include "quant_blocks.h"
#include "tile.h"
#include "transpose.h"

namespace sharpi::avx512 {

// d * scale of every group; scales[i]: bytes of groups 4i..4i+3.
template <int kGroups>
inline void store_products(Floats d, const Ints scales[], float out[][kHalves][kLanes], int half) {
  for (int g = 0; g < kGroups; g++)
    _mm512_store_ps(out[g][half], _mm512_mul_ps(d, to_float(byte_of(scales[g / 4], g % 4))));
}

// The same for signed bytes.
template <int kGroups>
inline void store_signed_products(Floats d, const Ints scales[], float out[][kHalves][kLanes],
                                  int half) {
  for (int g = 0; g < kGroups; g++) {
    const Ints top = _mm512_slli_epi32(scales[g / 4], 24 - 8 * (g % 4));
    _mm512_store_ps(out[g][half], _mm512_mul_ps(d, to_float(_mm512_srai_epi32(top, 24))));
  }
}

// d, dmin and the 12 bytes of 6-bit scales and mins that Q4_K and Q5_K begin with.
inline void unpack_six_bit_scales(Rows blocks, Tile& tile, int half) {
  Ints x[4];
  transpose16(blocks, x);
  const auto pack = [](Ints low, Ints high) {
    return merge_bits(low, bytes(15), _mm512_srli_epi16(high, 2), bytes(0x30));
  };
  const Ints scales[2] = {bit_and(x[1], bytes(63)), pack(x[3], x[1])};
  const Ints mins[2] = {bit_and(x[2], bytes(63)), pack(_mm512_srli_epi16(x[3], 4), x[2])};
  store_products<8>(low_half(x[0]), scales, tile.scale, half);
  store_products<8>(_mm512_sub_ps(_mm512_setzero_ps(), high_half(x[0])), mins, tile.offset, half);
}

struct UnpackQ4_K {
  static constexpr TileKind kKind{32, true, 0};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockQ4_K);

  [[gnu::noinline]] static void unpack(Rows blocks, int, Tile& tile, int half) {
    unpack_six_bit_scales(blocks, tile, half);
    for (int pair = 0; pair < 4; pair++) {  // of groups: low nibbles, then high
      Ints x[8];
      transpose32(blocks + (offsetof(BlockQ4_K, qs) + 32 * pair), x);
      for (int k = 0; k < 8; k++) {
        store(tile.w[16 * pair + k][half], low_nibbles(x[k]));
        store(tile.w[16 * pair + 8 + k][half], high_nibbles(x[k]));
      }
    }
  }
};

struct UnpackQ5_K {
  static constexpr TileKind kKind{32, true, 0};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockQ5_K);

  [[gnu::noinline]] static void unpack(Rows blocks, int, Tile& tile, int half) {
    unpack_six_bit_scales(blocks, tile, half);
    Ints fifth[8];  // bit g: group g's
    transpose32(blocks + offsetof(BlockQ5_K, qh), fifth);
#pragma GCC unroll 4
    for (int pair = 0; pair < 4; pair++) {
      Ints x[8];
      transpose32(blocks + (offsetof(BlockQ5_K, qs) + 32 * pair), x);
      for (int k = 0; k < 8; k++) {
        const Ints low = shift_bits<4>(fifth[k], 2 * pair),
                   high = shift_bits<4>(fifth[k], 2 * pair + 1);
        store(tile.w[16 * pair + k][half], merge_bits(x[k], bytes(15), low, bytes(16)));
        store(tile.w[16 * pair + 8 + k][half],
              merge_bits(_mm512_srli_epi16(x[k], 4), bytes(15), high, bytes(16)));
      }
    }
  }
};

struct UnpackQ6_K {
  static constexpr TileKind kKind{16, false, 32};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockQ6_K);

  [[gnu::noinline]] static void unpack(Rows blocks, int, Tile& tile, int half) {
    Ints scales[4];
    transpose16(blocks + offsetof(BlockQ6_K, scales), scales);
    const Floats d = high_half(gather4(blocks + (offsetof(BlockQ6_K, d) - 2)));
    store_signed_products<16>(d, scales, tile.scale, half);
    for (int part = 0; part < 2; part++) {  // of 128 columns
      Ints top[8];
      transpose32(blocks + (offsetof(BlockQ6_K, qh) + 32 * part), top);
#pragma GCC unroll 2
      for (int side = 0; side < 2;
           side++) {  // low nibbles: columns from 32 * side; high nibbles: 64 later
        Ints x[8];
        transpose32(blocks + (64 * part + 32 * side), x);
        for (int k = 0; k < 8; k++) {
          const Ints low = shift_bits<4>(top[k], 2 * side),
                     high = shift_bits<4>(top[k], 4 + 2 * side);
          uint8_t (*w)[kHalves][64] = tile.w + 32 * part + 8 * side + k;
          store(w[0][half], merge_bits(x[k], bytes(15), low, bytes(0x30)));
          store(w[16][half], merge_bits(_mm512_srli_epi16(x[k], 4), bytes(15), high, bytes(0x30)));
        }
      }
    }
  }
};

struct UnpackQ2_K {
  static constexpr TileKind kKind{16, true, 0};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockQ2_K);

  [[gnu::noinline]] static void unpack(Rows blocks, int, Tile& tile, int half) {
    Ints packed[4], scales[4], mins[4];
    transpose16(blocks + offsetof(BlockQ2_K, scales), packed);
    for (int i = 0; i < 4; i++)
      scales[i] = low_nibbles(packed[i]), mins[i] = high_nibbles(packed[i]);
    const Ints d = gather4(blocks + offsetof(BlockQ2_K, d));
    store_products<16>(low_half(d), scales, tile.scale, half);
    store_products<16>(_mm512_sub_ps(_mm512_setzero_ps(), high_half(d)), mins, tile.offset, half);
    for (int part = 0; part < 2; part++) {  // of 128 columns: 4 x 2 bits of 32 bytes
      Ints x[8];
      transpose32(blocks + (offsetof(BlockQ2_K, qs) + 32 * part), x);
#pragma GCC unroll 4
      for (int i = 0; i < 4; i++)
        for (int k = 0; k < 8; k++)
          store(tile.w[32 * part + 8 * i + k][half],
                bit_and(_mm512_srli_epi16(x[k], 2 * i), bytes(3)));
    }
  }
};

struct UnpackQ3_K {
  static constexpr TileKind kKind{16, false, 4};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockQ3_K);

  [[gnu::noinline]] static void unpack(Rows blocks, int, Tile& tile, int half) {
    unpack_scales(blocks, tile, half);
    Ints third[8];  // bit i: columns 32i..32i+31
    transpose32(blocks + offsetof(BlockQ3_K, hmask), third);
#pragma GCC unroll 2
    for (int part = 0; part < 2; part++) {
      Ints x[8];
      transpose32(blocks + (offsetof(BlockQ3_K, qs) + 32 * part), x);
#pragma GCC unroll 4
      for (int i = 0; i < 4; i++)
        for (int k = 0; k < 8; k++)
          store(tile.w[32 * part + 8 * i + k][half],
                merge_bits(_mm512_srli_epi16(x[k], 2 * i), bytes(3),
                           shift_bits<2>(third[k], 4 * part + i), bytes(4)));
    }
  }

 private:
  // 16 scales of 6 bits, less 32. The 16 bytes that end with d begin two bytes before them.
  static void unpack_scales(Rows blocks, Tile& tile, int half) {
    Ints x[4], s[3], scales[4];
    transpose16(blocks + (offsetof(BlockQ3_K, scales) - 2), x);
    for (int i = 0; i < 3; i++)
      s[i] = bit_or(_mm512_srli_epi32(x[i], 16), _mm512_slli_epi32(x[i + 1], 16));
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
      const Ints low = i < 2 ? s[i] : _mm512_srli_epi16(s[i - 2], 4);
      scales[i] = _mm512_sub_epi8(
          merge_bits(low, bytes(15), shift_bits<4>(s[2], 2 * i), bytes(0x30)), bytes(32));
    }
    store_signed_products<16>(high_half(x[3]), scales, tile.scale, half);
  }
};

}  // namespace sharpi::avx512
