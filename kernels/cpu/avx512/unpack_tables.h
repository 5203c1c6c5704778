// Unpacks types whose four bits index a table of 16 values: IQ4_NL, IQ4_XS, MXFP4, NVFP4.
#pragma once
#include <cstddef>

#include "unpack_blocks_of_32.h"

namespace sharpi::avx512 {
namespace {

// Returns the values of IQ4_NL and IQ4_XS, plus 127.
inline Ints nonlinear_values() {
  const Ints values = _mm512_broadcast_i32x4(_mm_setr_epi8(SHARPI_IQ4_VALUES));
  return _mm512_add_epi8(values, bytes(127));
}
// Returns twice the values of an E2M1 float, plus 12.
inline Ints e2m1_values() {
  const Ints values = _mm512_broadcast_i32x4(_mm_setr_epi8(SHARPI_E2M1_TWICE));
  return _mm512_add_epi8(values, bytes(12));
}
inline void look_up(Ints table, Ints w[8]) {
  for (int k = 0; k < 8; k++) w[k] = _mm512_shuffle_epi8(table, w[k]);
}

struct IQ4_NL {
  using Block = BlockIQ4_NL;
  static constexpr TileKind kKind{32, false, 127};
  static Floats scale(Ints start) { return low_half(start); }
  static void values(Rows block, Ints w[8]) {
    split_nibbles(block + offsetof(Block, qs), w);
    look_up(nonlinear_values(), w);
  }
};

struct MXFP4 {
  using Block = BlockMXFP4;
  static constexpr TileKind kKind{32, false, 12};
  // Returns 2^(e - 128), half the scale, because the values are doubled. At the ends, 2^-128
  // becomes zero, and e = 255, which means NaN, becomes infinite.
  static Floats scale(Ints start) {
    const Ints exponent = _mm512_srli_epi32(_mm512_slli_epi32(start, 24), 1);
    return _mm512_mul_ps(_mm512_castsi512_ps(exponent), _mm512_set1_ps(0.5f));
  }
  static void values(Rows block, Ints w[8]) {
    split_nibbles(block + offsetof(Block, qs), w);
    look_up(e2m1_values(), w);
  }
};

// Four groups of 16, each with a scale of 4 exponent bits and 3 mantissa bits.
struct UnpackNVFP4 {
  static constexpr TileKind kKind{16, false, 12};
  static constexpr int kBlockColumns = 64, kBlockBytes = sizeof(BlockNVFP4);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int num_parts, Out& out) {
#pragma GCC unroll 1
    for (int part = 0; part < num_parts; part += 2, blocks = blocks + kBlockBytes) {
      const Ints codes = gather4(blocks);
      for (int g = 0; g < 4; g++) out.scale(2 * part + g, scale(byte_of(codes, g)));
      Ints x[8];
      transpose32(blocks + offsetof(BlockNVFP4, qs), x);
      for (int i = 0; i < 2; i++) {
        const Ints* y = x + 4 * i;  // bytes of two groups
        Ints w[8] = {low_nibbles(y[0]), low_nibbles(y[1]), high_nibbles(y[0]), high_nibbles(y[1]),
                     low_nibbles(y[2]), low_nibbles(y[3]), high_nibbles(y[2]), high_nibbles(y[3])};
        look_up(e2m1_values(), w);
        out.weights(part + i, w);
      }
    }
  }

 private:
  // Returns half the scale, because the values are doubled; the code for NaN gives 0.
  [[gnu::always_inline]] static Floats scale(Ints code) {
    const Ints bits = _mm512_maskz_slli_epi32(_mm512_cmpneq_epi32_mask(code, dwords(0x7f)),
                                              bit_and(code, dwords(0x7f)), 20);
    return _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0x1p119f));
  }
};

// Eight groups of 32 with 6-bit scales, less 32, in two places.
struct UnpackIQ4_XS {
  static constexpr TileKind kKind{32, false, 127};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockIQ4_XS);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const Ints start = gather4(blocks), low = gather4(blocks + offsetof(BlockIQ4_XS, scales_l));
    const Floats d = low_half(start);
    for (int g = 0; g < 8; g++) {
      const Ints high = _mm512_slli_epi32(_mm512_srli_epi32(start, 16 + 2 * g), 4);
      const Ints scale = merge_bits(_mm512_srli_epi32(low, 4 * g), dwords(15), high, dwords(0x30));
      out.scale(g, _mm512_mul_ps(d, to_float(_mm512_sub_epi32(scale, dwords(32)))));
      Ints w[8];
      split_nibbles(blocks + (offsetof(BlockIQ4_XS, qs) + 16 * g), w);
      look_up(nonlinear_values(), w);
      out.weights(g, w);
    }
  }
};

}  // namespace
}  // namespace sharpi::avx512
