// Types whose four bits are an index into 16 values: IQ4_NL, IQ4_XS, MXFP4, NVFP4.
#pragma once
#include "unpack_blocks_of_32.h"

namespace sharpi::avx2 {
namespace {

inline void look_up(__m128i table, Ints w[8]) {
  for (int k = 0; k < 8; k++) w[k] = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), w[k]);
}
inline __m128i nonlinear_values() { return _mm_setr_epi8(SHARPI_IQ4_VALUES); }
// Twice the values of an E2M1 float, plus 12.
inline __m128i e2m1_values() {
  return _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
}

struct IQ4_NL {
  using Block = BlockIQ4_NL;
  static constexpr TileKind kKind{32, false, 0, 128};
  static Floats scale(Rows block) { return gather_halves(block); }
  static void values(Rows block, Ints w[8]) {
    split_nibbles(block + offsetof(Block, qs), w);
    look_up(nonlinear_values(), w);
  }
};

struct MXFP4 {
  using Block = BlockMXFP4;
  static constexpr TileKind kKind{32, false, 12, 24};
  // 2^(e - 128), half of what the exponent says since the values are doubled; subnormal below 2.
  static Floats scale(Rows block) {
    const auto exponent = [&](int r) { return *block.at(r); };
    const Ints e = _mm256_setr_epi32(exponent(0), exponent(1), exponent(2), exponent(3),
                                     exponent(4), exponent(5), exponent(6), exponent(7));
    const Ints normal = _mm256_slli_epi32(_mm256_sub_epi32(e, dwords(1)), 23);
    const Ints subnormal = _mm256_sllv_epi32(dwords(0x00200000), e);
    return _mm256_castsi256_ps(
        _mm256_blendv_epi8(normal, subnormal, _mm256_cmpgt_epi32(dwords(2), e)));
  }
  static void values(Rows block, Ints w[8]) {
    split_nibbles(block + offsetof(Block, qs), w);
    look_up(e2m1_values(), w);
  }
};

// Four groups of 16, each with a scale of 4 bits of exponent and 3 of mantissa.
struct UnpackNVFP4 {
  static constexpr TileKind kKind{16, false, 12, 24};
  static constexpr int kBlockColumns = 64, kBlockBytes = sizeof(BlockNVFP4);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int num_parts, Out& out) {
#pragma GCC unroll 1
    for (int i = 0; i < num_parts; i += 2, blocks.start += kBlockBytes) {
      const Ints codes = gather4(blocks);
      for (int g = 0; g < 4; g++)
        out.scale(2 * i + g, scale(bit_and(_mm256_srli_epi32(codes, 8 * g), dwords(255))));
      for (int half = 0; half < 2; half++) {
        Ints x[4];  // two groups
        transpose16(blocks + (offsetof(BlockNVFP4, qs) + 16 * half), x);
        Ints w[8] = {low_nibbles(x[0]), low_nibbles(x[1]), high_nibbles(x[0]), high_nibbles(x[1]),
                     low_nibbles(x[2]), low_nibbles(x[3]), high_nibbles(x[2]), high_nibbles(x[3])};
        look_up(e2m1_values(), w);
        put_part(i + half, w, out);
      }
    }
  }

 private:
  // Half of what the code says since the values are doubled; what would be NaN is 0.
  static Floats scale(Ints code) {
    const Ints nan = _mm256_cmpeq_epi32(code, dwords(0x7f));
    const Ints bits =
        _mm256_andnot_si256(nan, bit_and(_mm256_slli_epi32(code, 20), dwords(0x7f << 20)));
    return _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(0x1p119f));
  }
};

// Eight groups of 32 with 6-bit scales, less 32, in two places.
struct UnpackIQ4_XS {
  static constexpr TileKind kKind{32, false, 0, 128};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockIQ4_XS);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const Ints start = gather4(blocks), low = gather4(blocks + offsetof(BlockIQ4_XS, scales_l));
    const Floats d = low_half(start);
    for (int g = 0; g < 8; g++) {
      const Ints four = bit_and(_mm256_srli_epi32(low, 4 * g), dwords(15));
      const Ints two = bit_and(_mm256_srli_epi32(start, 16 + 2 * g), dwords(3));
      const Ints scale = _mm256_sub_epi32(bit_or(four, _mm256_slli_epi32(two, 4)), dwords(32));
      out.scale(g, _mm256_mul_ps(d, to_float(scale)));
      Ints w[8];
      split_nibbles(blocks + (offsetof(BlockIQ4_XS, qs) + 16 * g), w);
      look_up(nonlinear_values(), w);
      put_part(g, w, out);
    }
  }
};

}  // namespace
}  // namespace sharpi::avx2
