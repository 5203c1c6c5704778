// Unpacks super-blocks of 256 with packed scales, 16 rows at a time: Q4_K, Q5_K, Q6_K.
//
// Fields are transposed first (transpose.h), so that one operation splits the bits of all rows.
#pragma once
#include <cstddef>

#include "quant_blocks.h"
#include "tile.h"
#include "transpose.h"

namespace sharpi::avx512 {
namespace {

// Multiplies a float of every row with the bytes (below 128) of its dword, each product rounded
// once. It takes two operations per byte: the byte becomes the last bits of 2^23, which the
// multiply-add subtracts again.
class ByteProducts {
 public:
  ByteProducts() = default;
  // `odd` replaces `x` for bytes 1 and 3.
  [[gnu::always_inline]] ByteProducts(Floats x, Floats odd) {
    const Floats factors[3] = {x, odd, x};
    for (int i = 0; i < 3; i++) {
      x_[i] = _mm512_mul_ps(factors[i], _mm512_set1_ps(1.f / float(1 << 8 * i)));
      less_[i] = _mm512_mul_ps(x_[i], _mm512_set1_ps(-float(1 << 23)));
    }
  }
  [[gnu::always_inline]] explicit ByteProducts(Floats x) : ByteProducts(x, x) {}

  [[gnu::always_inline]] Floats with(Ints dwords_of_bytes, int i) const {
    const int at = i < 3 ? i : 1;  // a float has no room for bits from 24 on
    const Ints shifted = i < 3 ? dwords_of_bytes : _mm512_srli_epi32(dwords_of_bytes, 16);
    const Ints sum =
        _mm512_ternarylogic_epi32(shifted, dwords(255 << 8 * at), dwords(0x4b000000), 0xea);
    return _mm512_fmadd_ps(_mm512_castsi512_ps(sum), x_[at], less_[at]);
  }

 private:
  Floats x_[3], less_[3];
};

// Computes x * byte g of the signed bytes, four of which are in each dword.
[[gnu::always_inline]] inline Floats signed_product(Floats x, const Ints bytes[], int g) {
  const Floats small = _mm512_mul_ps(x, _mm512_set1_ps(1.f / float(1 << 24)));
  return _mm512_mul_ps(small, to_float(top_byte(bytes[g / 4], g % 4)));
}

// Scales are computed right before their group is multiplied: arrays would be written and read
// again, and a 64-byte store takes two cycles.

// The d, dmin and 12 bytes of 6-bit scales and mins at the beginning of Q4_K and Q5_K. The weights
// of odd groups are unpacked `odd_factor` times too large.
class SixBitScales {
 public:
  [[gnu::always_inline]] SixBitScales(Rows blocks, float odd_factor) {
    Ints x[4];
    transpose16(blocks, x);
    const auto pack = [](Ints low, Ints high) {
      return merge_bits(low, bytes(15), _mm512_srli_epi16(high, 2), bytes(0x30));
    };
    scales_[0] = bit_and(x[1], bytes(63)), scales_[1] = pack(x[3], x[1]);
    mins_[0] = bit_and(x[2], bytes(63)), mins_[1] = pack(_mm512_srli_epi16(x[3], 4), x[2]);
    const Floats d = low_half(x[0]);
    d_ = ByteProducts(d, _mm512_mul_ps(d, _mm512_set1_ps(1 / odd_factor)));
    minus_dmin_ = ByteProducts(_mm512_sub_ps(_mm512_setzero_ps(), high_half(x[0])));
  }
  template <class Out>
  [[gnu::always_inline]] void put(int group, Out& out) const {
    out.scale(group, d_.with(scales_[group / 4], group % 4));
    out.offset(group, minus_dmin_.with(mins_[group / 4], group % 4));
  }

 private:
  Ints scales_[2], mins_[2];  // bytes of four groups each
  ByteProducts d_, minus_dmin_;
};

struct UnpackQ4_K {
  static constexpr TileKind kKind{32, true, 0};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockQ4_K);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const SixBitScales scales(blocks,
                              // high nibbles stay in place, so no shift is needed and the bits are
                              // the same
                              16);
#pragma GCC unroll 4
    for (int pair = 0; pair < 4; pair++) {  // of groups: low nibbles, then high ones
      Ints x[8], low[8], high[8];
      transpose32(blocks + (offsetof(BlockQ4_K, qs) + 32 * pair), x);
      for (int k = 0; k < 8; k++) low[k] = low_nibbles(x[k]), high[k] = bit_and(x[k], bytes(0xf0));
      scales.put(2 * pair, out);
      out.weights(2 * pair, low);
      scales.put(2 * pair + 1, out);
      out.weights(2 * pair + 1, high);
    }
  }
};

struct UnpackQ5_K {
  static constexpr TileKind kKind{32, true, 0};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockQ5_K);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const SixBitScales scales(blocks, 1);
    Ints fifth[8];  // bit g belongs to group g
    transpose32(blocks + offsetof(BlockQ5_K, qh), fifth);
#pragma GCC unroll 4
    for (int pair = 0; pair < 4; pair++) {
      Ints x[8], low[8], high[8];
      transpose32(blocks + (offsetof(BlockQ5_K, qs) + 32 * pair), x);
      for (int k = 0; k < 8; k++) {
        low[k] = merge_bits(x[k], bytes(15), shift_bits<4>(fifth[k], 2 * pair), bytes(16));
        high[k] = merge_bits(_mm512_srli_epi16(x[k], 4), bytes(15),
                             shift_bits<4>(fifth[k], 2 * pair + 1), bytes(16));
      }
      scales.put(2 * pair, out);
      out.weights(2 * pair, low);
      scales.put(2 * pair + 1, out);
      out.weights(2 * pair + 1, high);
    }
  }
};

struct UnpackQ6_K {
  static constexpr TileKind kKind{16, false, 32};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockQ6_K);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    Ints scales[4];
    transpose16(blocks + offsetof(BlockQ6_K, scales), scales);
    const Floats d = high_half(gather4(blocks + (offsetof(BlockQ6_K, d) - 2)));
    const auto put = [&](int part, const Ints w[8]) __attribute__((always_inline)) {
      for (int g = 2 * part; g < 2 * part + 2; g++) out.scale(g, signed_product(d, scales, g));
      out.weights(part, w);
    };
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {  // of the columns
      Ints top[8], even[8],
          odd[8];  // two bits of each of four groups of columns; of groups 0 and 2, of 1 and 3
      transpose32(blocks + (offsetof(BlockQ6_K, qh) + 32 * half), top);
      for (int k = 0; k < 8; k++)
        even[k] = bit_and(top[k], bytes(0x33)), odd[k] = bit_and(top[k], bytes(0xcc));
      Ints low[2][8], high[2][8];
#pragma GCC unroll 2
      for (int side = 0; side < 2; side++) {  // low nibbles here, high nibbles 64 columns later
        Ints x[8];
        transpose32(blocks + (64 * half + 32 * side), x);
        for (int k = 0; k < 8; k++) {
          const Ints above = side ? _mm512_slli_epi16(odd[k], 2) : _mm512_slli_epi16(even[k], 4);
          const Ints above_high = side ? _mm512_srli_epi16(odd[k], 2) : even[k];
          low[side][k] = choose_bits(bytes(15), x[k], above);
          high[side][k] = choose_bits(bytes(15), _mm512_srli_epi16(x[k], 4), above_high);
        }
        put(4 * half + side, low[side]);
      }
#pragma GCC unroll 2
      for (int side = 0; side < 2; side++) put(4 * half + 2 + side, high[side]);
    }
  }
};

}  // namespace
}  // namespace sharpi::avx512
