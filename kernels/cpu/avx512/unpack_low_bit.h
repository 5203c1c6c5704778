// Unpacks super-blocks of 256 with packed scales, 16 rows at a time: Q2_K, Q3_K; and TQ2_0.
#pragma once
#include "unpack_k_quants.h"

namespace sharpi::avx512 {
namespace {

struct UnpackQ2_K {
  static constexpr TileKind kKind{16, true, 0};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockQ2_K);

  // The two bits of a weight stay in place within their byte, which is cheaper and gives the same
  // result: weights are unpacked 4^i times too large, and scales that much smaller.
  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    Ints scales[4];  // low nibbles; the high ones are the mins
    transpose16(blocks + offsetof(BlockQ2_K, scales), scales);
    const Ints both = gather4(blocks + offsetof(BlockQ2_K, d));
    const Floats d = low_half(both),
                 minus_dmin = _mm512_sub_ps(_mm512_setzero_ps(), high_half(both));
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
      Ints x[8], w[8];
      transpose32(blocks + (offsetof(BlockQ2_K, qs) + 32 * half), x);
#pragma GCC unroll 4
      for (int i = 0; i < 4; i++) {
        const int part = 4 * half + i;
#pragma GCC unroll 2
        for (int g = 2 * part; g < 2 * part + 2; g++) {
          out.scale(g, nibble_products(d, scales[g / 4], g % 4 * 8, 1.f / float(1 << 2 * i)));
          out.offset(g, nibble_products(minus_dmin, scales[g / 4], g % 4 * 8 + 4, 1));
        }
        for (int k = 0; k < 8; k++) w[k] = bit_and(x[k], bytes(3 << 2 * i));
        out.weights(part, w);
      }
    }
  }

 private:
  // Computes x * factor * the four bits from `bit` on.
  [[gnu::always_inline]] static Floats nibble_products(Floats x, Ints nibbles, int bit,
                                                       float factor) {
    Floats products;
    for (int i = 0; i < 16; i++) products[i] = float(i) * factor;
    return _mm512_mul_ps(x, _mm512_permutexvar_ps(_mm512_srli_epi32(nibbles, bit), products));
  }
};

struct UnpackTQ2_0 {
  static constexpr TileKind kKind{32, false, 1};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockTQ2_0);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const Floats d = high_half(gather4(blocks + (offsetof(BlockTQ2_0, d) - 2)));
    for (int g = 0; g < 8; g++) out.scale(g, d);
    for (int half = 0; half < 2; half++) {
      Ints x[8], w[8];
      transpose32(blocks + (offsetof(BlockTQ2_0, qs) + 32 * half), x);
#pragma GCC unroll 4
      for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 8; k++) w[k] = bit_and(_mm512_srli_epi16(x[k], 2 * i), bytes(3));
        out.weights(4 * half + i, w);
      }
    }
  }
};

struct UnpackQ3_K {
  static constexpr TileKind kKind{16, false, 4};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockQ3_K);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    Ints scales[4];
    const Floats d = unpack_scales(blocks, scales);
    Ints third[8];  // bit i belongs to columns 32i..32i+31
    transpose32(blocks + offsetof(BlockQ3_K, hmask), third);
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
      Ints x[8], w[8];
      transpose32(blocks + (offsetof(BlockQ3_K, qs) + 32 * half), x);
#pragma GCC unroll 4
      for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 8; k++)
          w[k] = merge_bits(_mm512_srli_epi16(x[k], 2 * i), bytes(3),
                            shift_bits<2>(third[k], 4 * half + i), bytes(4));
        const int part = 4 * half + i;
        for (int g = 2 * part; g < 2 * part + 2; g++) out.scale(g, signed_product(d, scales, g));
        out.weights(part, w);
      }
    }
  }

 private:
  // Returns d and unpacks 16 scales of 6 bits, less 32. The 16 bytes that end with d begin two
  // bytes before the scales.
  [[gnu::always_inline]] static Floats unpack_scales(Rows blocks, Ints scales[4]) {
    Ints x[4], s[3];
    transpose16(blocks + (offsetof(BlockQ3_K, scales) - 2), x);
    for (int i = 0; i < 3; i++)
      s[i] = bit_or(_mm512_srli_epi32(x[i], 16), _mm512_slli_epi32(x[i + 1], 16));
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
      const Ints low = i < 2 ? s[i] : _mm512_srli_epi16(s[i - 2], 4);
      const Ints six = merge_bits(low, bytes(15), shift_bits<4>(s[2], 2 * i), bytes(0x30));
      scales[i] = _mm512_sub_epi8(six, bytes(32));
    }
    return high_half(x[3]);
  }
};

}  // namespace
}  // namespace sharpi::avx512
