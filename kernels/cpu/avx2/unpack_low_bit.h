// Blocks of 256 with two or three bits, 8 rows at a time: Q2_K, Q3_K; and TQ2_0.
#pragma once
#include "unpack_k_quants.h"

namespace sharpi::avx2 {
namespace {

// Two bits, 32 columns from one byte's lowest to the next: half of a block from 32 bytes.
template <class Out>
[[gnu::always_inline]] inline void unpack_two_bits(Rows qs, Out& out) {
  for (int piece = 0; piece < 4; piece++) {  // 16 bytes: 4 x 16 columns, 32 apart
    Ints x[4];
    transpose16(qs + 16 * piece, x);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
      Ints w[4];
      for (int k = 0; k < 4; k++) w[k] = bit_and(_mm256_srli_epi16(x[k], 2 * i), bytes(3));
      out.weights(piece / 2 * 8 + 2 * i + piece % 2, w);
      if (piece % 2) out.finish(piece / 2 * 4 + i);
    }
  }
}

struct UnpackQ2_K {
  static constexpr TileKind kKind{16, true, 0, 3};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockQ2_K);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    Ints packed[4], scales[4], mins[4];
    transpose16(blocks + offsetof(BlockQ2_K, scales), packed);
    for (int i = 0; i < 4; i++)
      scales[i] = low_nibbles(packed[i]), mins[i] = high_nibbles(packed[i]);
    const Ints d = gather4(blocks + offsetof(BlockQ2_K, d));
    const Floats factor = low_half(d),
                 minus_dmin = _mm256_sub_ps(_mm256_setzero_ps(), high_half(d));
    for (int g = 0; g < 16; g++) out.scale(g, byte_product(factor, scales, g));
    for (int g = 0; g < 16; g++) out.offset(g, byte_product(minus_dmin, mins, g));
    unpack_two_bits(blocks + offsetof(BlockQ2_K, qs), out);
  }
};

struct UnpackTQ2_0 {
  static constexpr TileKind kKind{32, false, 1, 3};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockTQ2_0);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const Floats d = gather_halves(blocks + offsetof(BlockTQ2_0, d));
    for (int g = 0; g < 8; g++) out.scale(g, d);
    unpack_two_bits(blocks + offsetof(BlockTQ2_0, qs), out);
  }
};

struct UnpackQ3_K {
  static constexpr TileKind kKind{16, false, 4, 7};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockQ3_K);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    unpack_scales(blocks, out);
    Ints thirds[2][4];  // of each side, bit i: columns 32i..32i+31
    for (int side = 0; side < 2; side++)
      transpose16(blocks + (offsetof(BlockQ3_K, hmask) + 16 * side), thirds[side]);
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
#pragma GCC unroll 2
      for (int side = 0; side < 2; side++) {
        const Ints* third = thirds[side];
        Ints x[4];
        transpose16(blocks + (offsetof(BlockQ3_K, qs) + 32 * half + 16 * side), x);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
          Ints w[4];
          for (int k = 0; k < 4; k++)
            w[k] = bit_or(bit_and(_mm256_srli_epi16(x[k], 2 * i), bytes(3)),
                          bit_and(shift_bits<2>(third[k], 4 * half + i), bytes(4)));
          out.weights(8 * half + 2 * i + side, w);
          if (side) out.finish(4 * half + i);
        }
      }
    }
  }

 private:
  // 16 scales of 6 bits, less 32. The 16 bytes that end with d begin two bytes before them.
  template <class Out>
  [[gnu::always_inline]] static void unpack_scales(Rows blocks, Out& out) {
    Ints x[4], s[3], scales[4];
    transpose16(blocks + (offsetof(BlockQ3_K, scales) - 2), x);
    for (int i = 0; i < 3; i++)
      s[i] = bit_or(_mm256_srli_epi32(x[i], 16), _mm256_slli_epi32(x[i + 1], 16));
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
      const Ints low = i < 2 ? s[i] : _mm256_srli_epi16(s[i - 2], 4);
      scales[i] = _mm256_sub_epi8(join(low, shift_bits<4>(s[2], 2 * i), 0x30), bytes(32));
    }
    for (int g = 0; g < 16; g++) out.scale(g, signed_product(high_half(x[3]), scales, g));
  }
};

}  // namespace
}  // namespace sharpi::avx2
