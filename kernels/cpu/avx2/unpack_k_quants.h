// Blocks of 256, 8 rows at a time: Q4_K, Q5_K, Q6_K.
#pragma once
#include <cstddef>

#include "quant_blocks.h"
#include "token_block.h"
#include "transpose.h"

namespace sharpi::avx2 {
namespace {

// The low four bits of every byte of a, joined by the bits of b in `mask`.
inline Ints join(Ints a, Ints b, int mask) {
  return bit_or(low_nibbles(a), bit_and(b, bytes(mask)));
}

// x * byte g of the dwords, four in each; all below 128, or with their signs.
[[gnu::always_inline]] inline Floats byte_product(Floats x, const Ints bytes[], int g) {
  const Ints byte = bit_and(_mm256_srli_epi32(bytes[g / 4], g % 4 * 8), dwords(255));
  return _mm256_mul_ps(x, to_float(byte));
}
[[gnu::always_inline]] inline Floats signed_product(Floats x, const Ints bytes[], int g) {
  const Ints byte = _mm256_srai_epi32(_mm256_slli_epi32(bytes[g / 4], 24 - g % 4 * 8), 24);
  return _mm256_mul_ps(x, to_float(byte));
}

// d, dmin and the 12 bytes of 6-bit scales and mins that Q4_K and Q5_K begin with. Each is made
// when its group is finished: made at once, they would be written and read again.
class SixBitScales {
 public:
  [[gnu::always_inline]] explicit SixBitScales(Rows blocks) {
    Ints x[4];
    transpose16(blocks, x);
    const auto six_bits = [](Ints low, Ints high) {
      return join(low, shift_bits<4>(high, 6), 0x30);
    };
    scales_[0] = bit_and(x[1], bytes(63)), scales_[1] = six_bits(x[3], x[1]);
    mins_[0] = bit_and(x[2], bytes(63)), mins_[1] = six_bits(_mm256_srli_epi16(x[3], 4), x[2]);
    d_ = low_half(x[0]);
    minus_dmin_ = _mm256_sub_ps(_mm256_setzero_ps(), high_half(x[0]));
  }
  template <class Out>
  [[gnu::always_inline]] void finish(int group, Out& out) const {
    out.scale(group, byte_product(d_, scales_, group));
    out.offset(group, byte_product(minus_dmin_, mins_, group));
    out.finish(group);
  }

 private:
  Ints scales_[2], mins_[2];  // bytes of four groups each
  Floats d_, minus_dmin_;
};

struct UnpackQ4_K {
  static constexpr TileKind kKind{32, true, 0, 15};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockQ4_K);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const SixBitScales scales(blocks);
#pragma GCC unroll 8
    for (int piece = 0; piece < 8; piece++) {  // of 16 bytes: half of two groups
      const int first = piece / 2 * 4 + piece % 2;
      Ints x[4], low[4], high[4];
      transpose16(blocks + (offsetof(BlockQ4_K, qs) + 16 * piece), x);
      for (int k = 0; k < 4; k++) low[k] = low_nibbles(x[k]), high[k] = high_nibbles(x[k]);
      out.weights(first, low);
      out.weights(first + 2, high);
      if (piece % 2) scales.finish(piece - 1, out), scales.finish(piece, out);
    }
  }
};

struct UnpackQ5_K {
  static constexpr TileKind kKind{32, true, 0, 31};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockQ5_K);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const SixBitScales scales(blocks);
    Ints fifths[2][4];  // of half of every group, bit g: group g's
    for (int side = 0; side < 2; side++)
      transpose16(blocks + (offsetof(BlockQ5_K, qh) + 16 * side), fifths[side]);
#pragma GCC unroll 4
    for (int pair = 0; pair < 4; pair++) {
#pragma GCC unroll 2
      for (int side = 0; side < 2; side++) {
        const Ints* fifth = fifths[side];
        Ints x[4], low[4], high[4];
        transpose16(blocks + (offsetof(BlockQ5_K, qs) + 32 * pair + 16 * side), x);
        for (int k = 0; k < 4; k++) {
          low[k] = join(x[k], shift_bits<4>(fifth[k], 2 * pair), 16);
          high[k] = join(_mm256_srli_epi16(x[k], 4), shift_bits<4>(fifth[k], 2 * pair + 1), 16);
        }
        out.weights(4 * pair + side, low);
        out.weights(4 * pair + 2 + side, high);
      }
      scales.finish(2 * pair, out), scales.finish(2 * pair + 1, out);
    }
  }
};

struct UnpackQ6_K {
  static constexpr TileKind kKind{16, false, 32, 63};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockQ6_K);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    Ints scales[4];
    transpose16(blocks + offsetof(BlockQ6_K, scales), scales);
    const Floats d = high_half(gather4(blocks + (offsetof(BlockQ6_K, d) - 2)));
    for (int g = 0; g < 16; g++) out.scale(g, signed_product(d, scales, g));
#pragma GCC unroll 4
    for (int piece = 0; piece < 4; piece++) {  // 16 bytes of qh: 4 x 16 columns, 32 apart
      const int half = piece / 2, side = piece % 2;
      Ints top[4];
      transpose16(blocks + (offsetof(BlockQ6_K, qh) + 16 * piece), top);
#pragma GCC unroll 2
      for (int i = 0; i < 2; i++) {  // low nibbles: columns from 32 * i; high nibbles: 64 later
        Ints x[4], low[4], high[4];
        transpose16(blocks + (64 * half + 32 * i + 16 * side), x);
        for (int k = 0; k < 4; k++) {
          low[k] = join(x[k], shift_bits<4>(top[k], 2 * i), 0x30);
          high[k] = join(_mm256_srli_epi16(x[k], 4), shift_bits<4>(top[k], 4 + 2 * i), 0x30);
        }
        out.weights(8 * half + 2 * i + side, low);
        out.weights(8 * half + 4 + 2 * i + side, high);
      }
      for (int part = 4 * half; side && part < 4 * half + 4; part++) out.finish(part);
    }
  }
};

}  // namespace
}  // namespace sharpi::avx2
