// Unpacks types with few bits per weight and one scale per block, 16 rows at a time: Q1_0, Q2_0,
// and TQ1_0 with five base-3 digits per byte.
#pragma once
#include <cstddef>

#include "grid_lookup.h"
#include "quant_blocks.h"
#include "tile.h"
#include "transpose.h"

namespace sharpi::avx512 {
namespace {

// A type has values() of 32 columns of a block, from its bytes and from `part`, of which a block
// has kParts.
template <class Type>
struct UnpackBitsInOrder {
  using Block = typename Type::Block;
  static constexpr TileKind kKind{32, false, 1};
  static constexpr int kBlockColumns = 32 * Type::kParts, kBlockBytes = sizeof(Block);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int num_parts, Out& out) {
#pragma GCC unroll 1
    for (int first = 0; first < num_parts; first += Type::kParts, blocks = blocks + kBlockBytes) {
      Ints x[4];
      transpose16(blocks + offsetof(Block, qs), x);
      const Floats d = low_half(gather4(blocks));
#pragma GCC unroll 4
      for (int part = 0; part < Type::kParts; part++) {
        Ints w[8];
        Type::values(x, part, w);
        out.scale(first + part, d);
        out.weights(first + part, w);
      }
    }
  }
};

// 2 * bit
struct Q1_0 {
  using Block = BlockQ1_0;
  static constexpr int kParts = 4;
  static void values(const Ints x[4], int part, Ints w[8]) {
    for (int k = 0; k < 8; k++) {
      const Ints spread = _mm512_shuffle_epi8(x[part], repeat_byte(k / 2));
      w[k] = _mm512_maskz_mov_epi8(
          _mm512_test_epi8_mask(spread, dwords(k % 2 ? int(0x80402010) : 0x08040201)), bytes(2));
    }
  }
};

struct Q2_0 {
  using Block = BlockQ2_0;
  static constexpr int kParts = 2;
  static void values(const Ints x[4], int part, Ints w[8]) {
    const __m128i values = _mm_setr_epi8(0, 1, 2, 3, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0);
    for (int k = 0; k < 8; k++) w[k] = values_of_two_bits(x[2 * part + k / 4], k % 4, values);
  }
};

// Takes the highest digit of bytes read as base-3 fractions, and leaves the rest for the next one.
inline Ints first_digit(Ints x) {
  const Ints above_third = _mm512_subs_epu8(x, bytes(85)),
             above_two = _mm512_subs_epu8(x, bytes(170));
  return _mm512_add_epi8(_mm512_min_epu8(above_third, bytes(1)),
                         _mm512_min_epu8(above_two, bytes(1)));
}
inline Ints later_digits(Ints x) { return _mm512_add_epi8(x, _mm512_add_epi8(x, x)); }

// Takes a digit from each of kCount dwords of bytes.
template <int kCount>
[[gnu::always_inline]] inline void take_digits(Ints x[kCount], Ints w[kCount]) {
  for (int k = 0; k < kCount; k++) w[k] = first_digit(x[k]), x[k] = later_digits(x[k]);
}

struct UnpackTQ1_0 {
  static constexpr TileKind kKind{32, false, 1};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockTQ1_0);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const Floats d = high_half(gather4(blocks + (offsetof(BlockTQ1_0, d) - 2)));
    for (int g = 0; g < 8; g++) out.scale(g, d);
    Ints x[8], w[8];
    transpose32(blocks + offsetof(BlockTQ1_0, qs), x);
#pragma GCC unroll 5
    for (int digit = 0; digit < 5; digit++) {
      take_digits<8>(x, w);
      out.weights(digit, w);
    }
    transpose16(blocks + (offsetof(BlockTQ1_0, qs) + 32), x);
#pragma GCC unroll 2
    for (int pair = 0; pair < 2; pair++) {  // of digits
      take_digits<4>(x, w);
      take_digits<4>(x, w + 4);
      out.weights(5 + pair, w);
    }
    take_digits<4>(x, w);
    Ints last = gather4(blocks + offsetof(BlockTQ1_0, qh));
    for (int digit = 0; digit < 4; digit++) take_digits<1>(&last, w + 4 + digit);
    out.weights(7, w);
  }
};

}  // namespace
}  // namespace sharpi::avx512
