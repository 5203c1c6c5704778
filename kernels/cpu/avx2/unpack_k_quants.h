// Unpacks blocks of 256, 8 rows at a time: Q4_K, Q5_K, Q6_K.
#pragma once
#include <cstddef>

#include "layout.h"
#include "quant_blocks.h"
#include "token_block.h"

namespace sharpi::avx2 {
namespace {

// Joins the low four bits of every byte of a and the bits of b in `mask`.
inline Ints join(Ints a, Ints b, int mask) {
  return bit_or(low_nibbles(a), bit_and(b, bytes(mask)));
}

// Returns byte g, four of which are in each dword, signed, times 2^24.
[[gnu::always_inline]] inline Floats signed_byte(const Ints bytes[], int g) {
  const __m128i first = _mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c);
  const __m128i in_dword = _mm_set1_epi32(int(0x808080u | unsigned(g % 4) << 24));
  return to_float(shuffle_bytes(bytes[g / 4], twice(_mm_add_epi8(first, in_dword))));
}

// Moves byte g, four of which are in each dword, to both words of its dword: into their low bytes,
// their high ones, or both; the other bytes are zero.
[[gnu::always_inline]] inline Ints pick_byte(const Ints bytes[], int g, int low, int high) {
  const __m128i first = _mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c);
  const auto place = [&](int x) { return x ? g % 4 : -128; };
  const __m128i in_dword =
      _mm_set1_epi32((place(low) & 255) * 0x00010001 | (place(high) & 255) * 0x01000100);
  return shuffle_bytes(bytes[g / 4], twice(_mm_add_epi8(first, in_dword)));
}
[[gnu::always_inline]] inline Ints small_scale(const Ints bytes[], int g) {
  return pick_byte(bytes, g, 1, 0);
}
[[gnu::always_inline]] inline Ints signed_scale(const Ints bytes[], int g) {
  return sar16(pick_byte(bytes, g, 0, 1), 8);
}
// Returns it times 256, which takes a shift less.
[[gnu::always_inline]] inline Ints large_scale(const Ints bytes[], int g) {
  return pick_byte(bytes, g, 0, 1);
}
// Returns bytes g and g + 1 of every four as words.
[[gnu::always_inline]] inline Ints two_bytes(const Ints bytes[], int g) {
  const __m128i first = _mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c);
  const __m128i in_dword = _mm_set1_epi32(int(0x80008000u) | (g % 4 + 1) << 16 | g % 4);
  return shuffle_bytes(bytes[g / 4], twice(_mm_add_epi8(first, in_dword)));
}
// Returns them times 256.
[[gnu::always_inline]] inline Ints two_large_bytes(const Ints bytes[], int g) {
  const __m128i first = _mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c);
  const __m128i in_dword = _mm_set1_epi32(int(0x00800080u) | (g % 4 + 1) << 24 | g % 4 << 8);
  return shuffle_bytes(bytes[g / 4], twice(_mm_add_epi8(first, in_dword)));
}
[[gnu::always_inline]] inline Floats byte_as_float(const Ints bytes[], int g) {
  return to_float(bit_and(shr32(bytes[g / 4], g % 4 * 8), dwords(255)));
}

// Reads d, dmin and the 12 bytes of 6-bit scales and mins with which Q4_K and Q5_K begin.
class SixBitScales {
 public:
  template <class Out>
  [[gnu::always_inline]] SixBitScales(Rows blocks, Out& out) {
    Ints x[4];
    transpose16(blocks, x);
    const auto six_bits = [](Ints low, Ints high) {
      return join(low, shift_bits<4>(high, 6), 0x30);
    };
    scales_[0] = bit_and(x[1], bytes(63)), scales_[1] = six_bits(x[3], x[1]);
    mins_[0] = bit_and(x[2], bytes(63)), mins_[1] = six_bits(shr16(x[3], 4), x[2]);
    Floats d, dmin;
    both_halves(x[0], d, dmin);
    out.factors(d, zero_floats() - dmin);
  }
  // begin() comes before the weights of two groups, finish() after them.
  template <class Out>
  [[gnu::always_inline]] void begin(int pair, Out& out) const {
    for (int g = 2 * pair; g < 2 * pair + 2; g++) out.whole_scale(g, small_scale(scales_, g));
  }
  template <class Out>
  [[gnu::always_inline]] void finish(int pair, Out& out) const {
    for (int g = 2 * pair; g < 2 * pair + 2; g++) {
      out.mins(g, byte_as_float(mins_, g));
      out.finish(g);
    }
  }

 private:
  Ints scales_[2], mins_[2];  // bytes of four groups each
};

struct UnpackQ4_K {
  using Direct = PairedRows;
  static constexpr TileKind kKind{32, true, 0, 15, true};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockQ4_K);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const SixBitScales scales(blocks, out);
#pragma GCC unroll 4
    for (int pair = 0; pair < 4; pair++) {
      const Rows qs = blocks + (offsetof(BlockQ4_K, qs) + 32 * pair);
      scales.begin(pair, out);
      out.template groups<2>(4 * pair, [&](int side) __attribute__((always_inline)) {
        return split_nibbles<typename Out::Layout>(qs + 16 * side);
      });
      scales.finish(pair, out);
    }
  }
};

struct UnpackQ5_K {
  using Direct = PairedRows;
  static constexpr TileKind kKind{32, true, 0, 31, true};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockQ5_K);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    using Four = typename Out::Layout::Four;
    const SixBitScales scales(blocks, out);
    const Rows qh = blocks + offsetof(BlockQ5_K, qh);
    const Four fifths[2] = {Four(qh), Four(qh + 16)};  // bit g belongs to group g
    unpack_pair<0>(blocks, scales, fifths, out), unpack_pair<1>(blocks, scales, fifths, out);
    unpack_pair<2>(blocks, scales, fifths, out), unpack_pair<3>(blocks, scales, fifths, out);
  }

 private:
  // Unpacks two groups, whose nibbles share bytes.
  template <int kPair, class Four, class Out>
  [[gnu::always_inline]] static void unpack_pair(Rows blocks, const SixBitScales& scales,
                                                 const Four fifths[2], Out& out) {
    const Rows qs = blocks + (offsetof(BlockQ5_K, qs) + 32 * kPair);
    scales.begin(kPair, out);
    out.template groups<2>(4 * kPair, [&](int side) __attribute__((always_inline)) {
      return [x = Four(qs + 16 * side), y = fifths + side](int i, Ints w[2])
                 __attribute__((always_inline)) { join_both<kPair>(x[i], (*y)[i], w); };
    });
    scales.finish(kPair, out);
  }
  template <int kPair>
  [[gnu::always_inline]] static void join_both(Ints nibbles, Ints fifths, Ints w[2]) {
    w[0] = join(nibbles, shift_bits<4>(fifths, 2 * kPair), 16);
    w[1] = join(shr16(nibbles, 4), shift_bits<4>(fifths, 2 * kPair + 1), 16);
  }
};

struct UnpackQ6_K {
  using Direct = PairedRows;
  static constexpr TileKind kKind{16, false, 32, 63, true};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockQ6_K);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    Ints scales[4];
    transpose16(blocks + offsetof(BlockQ6_K, scales), scales);
    out.factors(gather_halves(blocks + offsetof(BlockQ6_K, d)), zero_floats());
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
#pragma GCC unroll 8
      for (int g = 8 * half; g < 8 * half + 8; g++) out.whole_scale(g, signed_scale(scales, g));
      unpack_side(blocks, half, 0, out);
      unpack_side(blocks, half, 1, out);
#pragma GCC unroll 4
      for (int part = 4 * half; part < 4 * half + 4; part++) out.finish(part);
    }
  }

 private:
  // Unpacks 4 x 16 columns, 32 apart.
  template <class Out>
  [[gnu::always_inline]] static void unpack_side(Rows blocks, int half, int side, Out& out) {
    const typename Out::Layout::Four two_bits(blocks +
                                              (offsetof(BlockQ6_K, qh) + 32 * half + 16 * side));
    const Rows nibbles = blocks + (64 * half + 16 * side);
    unpack_nibbles<0>(nibbles, two_bits, 8 * half + side, out);
    unpack_nibbles<1>(nibbles + 32, two_bits, 8 * half + side + 2, out);
  }
  // Unpacks the low and the high nibbles, which are 64 columns apart.
  template <int kField, class Four, class Out>
  [[gnu::always_inline]] static void unpack_nibbles(Rows nibbles, const Four& two_bits, int piece,
                                                    Out& out) {
    out.template pieces<2, 4>(
        piece, [&, x = Four(nibbles)](int i, Ints w[2]) __attribute__((always_inline)) {
          const Ints both = x[i], top = two_bits[i];
          w[0] = join(both, shift_bits<4>(top, 2 * kField), 0x30);
          w[1] = join(shr16(both, 4), shift_bits<4>(top, 4 + 2 * kField), 0x30);
        });
  }
};

}  // namespace
}  // namespace sharpi::avx2
