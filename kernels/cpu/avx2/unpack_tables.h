// Unpacks types whose four bits are an index into 16 values: IQ4_NL, IQ4_XS, MXFP4, NVFP4.
#pragma once
#include "unpack_blocks_of_32.h"
#include "unpack_k_quants.h"

namespace sharpi::avx2 {
namespace {

// Returns the table of IQ4_NL and IQ4_XS, with the bias of biased().
inline __m128i nonlinear_values() {
  const __m128i values = _mm_setr_epi8(SHARPI_IQ4_VALUES);
  return kHasDot ? _mm_xor_si128(values, _mm_set1_epi8(-128)) : values;
}
// Returns twice the values of an E2M1 float, plus 12.
inline __m128i e2m1_values() {
  return _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
}

// Returns a function that looks up register i of the nibbles of 16 bytes.
template <class Layout>
[[gnu::always_inline]] inline auto look_up_nibbles(__m128i table, Rows packed) {
  return [nibbles = split_nibbles<Layout>(packed), table](int i, Ints w[2])
             __attribute__((always_inline)) {
               nibbles(i, w);
               w[0] = look_up(table, w[0]), w[1] = look_up(table, w[1]);
             };
}

struct IQ4_NL {
  using Block = BlockIQ4_NL;
  static constexpr TileKind kKind = signed_kind(127);
  template <class>
  using Start = Rows;
  static Floats scale(Rows block) { return join_halves(block); }
  template <class Layout>
  static auto values(Rows block, Rows) {
    return look_up_nibbles<Layout>(nonlinear_values(), block + offsetof(Block, qs));
  }
};

struct MXFP4 {
  using Block = BlockMXFP4;
  static constexpr TileKind kKind{32, false, 12, 24};
  // Returns 2^(e - 128), half of what the exponent means, as the values are doubled. Below e = 2
  // that is subnormal, and the larger of the two.
  template <class>
  using Start = Rows;
  static Floats scale(Rows block) {
    const Ints e = gather_bytes(block);
    const Ints normal = shl32(sub32(e, dwords(1)), 23);
    const Ints subnormal = shl32(add32(e, dwords(1)), 21);
    return as_floats(max32(normal, subnormal));
  }
  template <class Layout>
  static auto values(Rows block, Rows) {
    return look_up_nibbles<Layout>(e2m1_values(), block + offsetof(Block, qs));
  }
};

// Unpacks four groups of 16; a scale has 4 bits of exponent and 3 of mantissa.
struct UnpackNVFP4 {
  static constexpr int kPartsAtOnce = 2;  // both are finished at once
  static constexpr TileKind kKind{16, false, 12, 24};
  static constexpr int kBlockColumns = 64, kBlockBytes = sizeof(BlockNVFP4);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int num_parts, Out& out) {
#pragma GCC unroll 1
    for (int i = 0; i < num_parts; i += 2, blocks.start += kBlockBytes) {
      const Ints codes = gather4(blocks);
      for (int g = 0; g < 4; g++)
        out.scale(2 * i + g, scale(bit_and(shr32(codes, 8 * g), dwords(255))));
      for (int half = 0; half < 2; half++) {
        Ints x[4];  // two groups
        transpose16(blocks + (offsetof(BlockNVFP4, qs) + 16 * half), x);
        Ints w[8] = {low_nibbles(x[0]), low_nibbles(x[1]), high_nibbles(x[0]), high_nibbles(x[1]),
                     low_nibbles(x[2]), low_nibbles(x[3]), high_nibbles(x[2]), high_nibbles(x[3])};
        for (Ints& x : w) x = look_up(e2m1_values(), x);
        out.part(i + half, w);
      }
    }
  }

 private:
  // Returns half of what the code means, as the values are doubled; 0 for NaN.
  static Floats scale(Ints code) {
    const Ints nan = equal32(code, dwords(0x7f));
    const Ints bits = and_not(nan, bit_and(shl32(code, 20), dwords(0x7f << 20)));
    return as_floats(bits) * floats(0x1p119f);
  }
};

// Unpacks eight groups of 32; their 6-bit scales, less 32, are in two places.
struct UnpackIQ4_XS {
  using Direct = PairedRows;
  static constexpr TileKind kKind = signed_kind(127);
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockIQ4_XS);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const Ints start = gather4(blocks);
    const Floats d = low_half(start) * floats(0x1p-24f);  // exact: scales are times 2^24
    Ints scales[2];                                       // those of even groups, then of odd ones
    unpack_scales(shr32(start, 16), gather4(blocks + offsetof(BlockIQ4_XS, scales_l)), scales);
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
      const Rows packed = blocks + (offsetof(BlockIQ4_XS, qs) + 16 * g);
      out.template pieces<2>(2 * g,
                             look_up_nibbles<typename Out::Layout>(nonlinear_values(), packed));
      out.scale(g, d * signed_byte(scales + g % 2, g / 2));
      out.finish(g);
    }
  }

 private:
  // Joins scales from 16 bits with their upper two and 32 bits with their lower four bits.
  [[gnu::always_inline]] static void unpack_scales(Ints upper, Ints lower, Ints scales[2]) {
    const Ints nibble_twice = shuffle_bytes(
        upper, twice(_mm_setr_epi8(0, 0, 1, 1, 4, 4, 5, 5, 8, 8, 9, 9, 12, 12, 13, 13)));
    const Ints nibbles = select(nibble_twice, shr16(nibble_twice, 4), dwords(int(0xff00ff00)));
    scales[0] = bit_or(low_nibbles(lower), bit_and(shl16(nibbles, 4), bytes(0x30)));
    scales[1] = bit_or(high_nibbles(lower), bit_and(shl16(nibbles, 2), bytes(0x30)));
    for (int i = 0; i < 2; i++) scales[i] = sub8(scales[i], bytes(32));
  }
};

}  // namespace
}  // namespace sharpi::avx2
