// Unpacks blocks of 256 with two or three bits, 8 rows at a time: Q2_K, Q3_K; and TQ2_0.
#pragma once
#include "unpack_k_quants.h"

namespace sharpi::avx2 {
namespace {

inline Ints two_bits(Ints x, int field) { return bit_and(shr16(x, 2 * field), bytes(3)); }

// Unpacks field 0 to 3 of every byte. With few tokens odd ones keep their place, and so are four
// times as large: a shift less for two of them.
template <class Out>
[[gnu::always_inline]] inline Ints two_bits_for(Ints x, int field) {
  if constexpr (!Out::kInPlace) return two_bits(x, field);
  return bit_and(field / 2 ? shr16(x, 4) : x, bytes(field % 2 ? 12 : 3));
}
// Unpacks all four.
template <class Out>
[[gnu::always_inline]] inline void all_fields(Ints x, Ints w[4]) {
  for (int k = 0; k < 4; k++) w[k] = two_bits_for<Out>(x, k);
}
constexpr TileKind in_place(TileKind kind) {
  kind.max_weight = 12, kind.odd_by_four = true;
  return kind;
}

// Returns the 16 bytes of 4 x 16 columns, 32 apart; `fields` are those of 256 columns.
inline Rows columns_of(Rows fields, int half, int side) { return fields + (32 * half + 16 * side); }

// Multiplies 256 columns with one token. Turns rows while those before are multiplied, and calls
// meanwhile(at, i) then, too: at and i from 0 to 3. Calls finish(half) after 128 columns.
template <class Out, class Meanwhile, class Finish>
[[gnu::always_inline]] inline void two_bits_by_columns(Rows fields, Out& out, Meanwhile meanwhile,
                                                       Finish finish) {
  using Four = typename Out::Layout::FourBySteps;
  Four columns[2] = {Four(columns_of(fields, 0, 0)), Four()};
  columns[0].all_steps();
#pragma GCC unroll 4
  for (int at = 0; at < 4; at++) {
    const int half = at / 2, side = at % 2;
    Four &x = columns[side], &after = columns[1 - side];
    if (at < 3) after.rows = columns_of(fields, (at + 1) / 2, 1 - side);
    const auto turn = [&](int i) __attribute__((always_inline)) {
      if (at < 3) after.step(i);
      meanwhile(at, i);
    };
    const auto make = [&](int i, Ints w[4])
                          __attribute__((always_inline)) { all_fields<Out>(x[i], w); };
    out.template pieces_by_columns<4, 2>(8 * half + side, make, turn);
    if (side) finish(half);
  }
}

struct UnpackQ2_K {
  static constexpr TileKind kKind{16, true, 0, 3, true}, kKindInPlace = in_place(kKind);
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockQ2_K);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    out.factors(join_halves(blocks + offsetof(BlockQ2_K, d)),
                join_halves(blocks + offsetof(BlockQ2_K, dmin)) * floats(-0x1p-4f));
    if constexpr (Out::kByColumns) return unpack_by_columns(blocks, out);
    Ints both[4];
    transpose16(blocks + offsetof(BlockQ2_K, scales), both);
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
      set_scales(both, half, out);
#pragma GCC unroll 2
      for (int side = 0; side < 2; side++) {
        const typename Out::Layout::Four x(
            columns_of(blocks + offsetof(BlockQ2_K, qs), half, side));
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++)
          out.template pieces<1>(8 * half + side + 2 * k,
                                 [&x, k](int i, Ints w[1]) __attribute__((always_inline)) {
                                   w[0] = two_bits_for<Out>(x[i], k);
                                 });
      }
      finish(both, half, out);
    }
  }

 private:
  template <class Out>
  [[gnu::always_inline]] static void set_scales(const Ints both[4], int half, Out& out) {
    Ints scales[4];
    for (int i = 0; i < 4; i++) scales[i] = low_nibbles(both[i]);
#pragma GCC unroll 8
    for (int g = 8 * half; g < 8 * half + 8; g++)
      if constexpr (!Out::kPairsScales) out.whole_scale(g, small_scale(scales, g));
      else if (g % 2 == 0) out.two_scales(g / 2, two_bytes(scales, g));
  }
  template <class Out>
  [[gnu::always_inline]] static void finish(const Ints both[4], int half, Out& out) {
    Ints mins[4];
    for (int i = 0; i < 4; i++) mins[i] = bit_and(both[i], bytes(0xf0));  // times 16
#pragma GCC unroll 4
    for (int part = 4 * half; part < 4 * half + 4; part++) {
      out.mins(part, as_floats(two_bytes(mins, 2 * part)));
      out.finish(part);
    }
  }
  // Turns the rows of scales with the first of the others.
  template <class Out>
  [[gnu::always_inline]] static void unpack_by_columns(Rows blocks, Out& out) {
    typename Out::Layout::FourBySteps scales(blocks + offsetof(BlockQ2_K, scales));
    const auto meanwhile = [&](int at, int i) __attribute__((always_inline)) {
      if (at == 0) scales.step(i);
      if (at == 0 && i == 3) set_scales(scales.x, 0, out);
    };
    const auto finish_half = [&](int half) __attribute__((always_inline)) {
      finish(scales.x, half, out);
      if (half == 0) set_scales(scales.x, 1, out);
    };
    two_bits_by_columns(blocks + offsetof(BlockQ2_K, qs), out, meanwhile, finish_half);
  }
};

struct UnpackTQ2_0 {
  using Direct = std::conditional_t<kTwoRegisters, PairedRows, TurnedRows>;
  static constexpr bool kOrdersEarly = false;
  static constexpr TileKind kKind{32, false, 0, 3, true, false, false, true},
      kKindInPlace = in_place(kKind);
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockTQ2_0);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    out.factors(join_halves(blocks + offsetof(BlockTQ2_0, d)), zero_floats());
    for (int g = 0; g < 8; g++) out.whole_scale(g, words(1));
    const Rows fields = blocks + offsetof(BlockTQ2_0, qs);
    const auto finish = [&](int half) __attribute__((always_inline)) {
      for (int part = 4 * half; part < 4 * half + 4; part++) out.finish(part);
    };
    if constexpr (Out::kByColumns) return two_bits_by_columns(fields, out, [](int, int) {}, finish);
    using Four = typename Out::Layout::Four;
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
      out.template groups<4>(8 * half, [&](int side) __attribute__((always_inline)) {
        return [x = Four(columns_of(fields, half, side))](int i, Ints w[4])
                   __attribute__((always_inline)) { all_fields<Out>(x[i], w); };
      });
      finish(half);
    }
  }
};

struct UnpackQ3_K {
  static constexpr bool kOrdersEarly = true;
  static constexpr TileKind kKind{16, false, 4, 7, true};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockQ3_K);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    unpack_scales(blocks, out);
    if constexpr (kTwoRegisters) unpack_by_halves(blocks, out);
    else unpack_by_sides(blocks, out);
  }

 private:
  // Both halves share a side's third bits, but hold more sums meanwhile.
  template <class Out>
  [[gnu::always_inline]] static void unpack_by_sides(Rows blocks, Out& out) {
#pragma GCC unroll 2
    for (int side = 0; side < 2; side++) {
      const typename Out::Layout::Four top(thirds_of(blocks, side));
#pragma GCC unroll 2
      for (int half = 0; half < 2; half++) unpack_fields(blocks, half, side, top, out);
    }
#pragma GCC unroll 8
    for (int part = 0; part < kParts; part++) out.finish(part);
  }
  template <class Out>
  [[gnu::always_inline]] static void unpack_by_halves(Rows blocks, Out& out) {
    using Four = typename Out::Layout::Four;
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
#pragma GCC unroll 2
      for (int side = 0; side < 2; side++)
        unpack_fields(blocks, half, side, Four(thirds_of(blocks, side)), out);
      for (int part = 4 * half; part < 4 * half + 4; part++) out.finish(part);
    }
  }
  // Returns the bytes whose bit i belongs to 16 columns from 32 * i + 16 * side on.
  static Rows thirds_of(Rows blocks, int side) {
    return blocks + (offsetof(BlockQ3_K, hmask) + 16 * side);
  }
  // Unpacks 4 x 16 columns, 32 apart.
  template <class Four, class Out>
  [[gnu::always_inline]] static void unpack_fields(Rows blocks, int half, int side, const Four& top,
                                                   Out& out) {
    const Rows qs = blocks + (offsetof(BlockQ3_K, qs) + 32 * half + 16 * side);
    const auto make = [x = Four(qs), &top, half](int i, Ints w[4]) __attribute__((always_inline)) {
      const Ints four = half ? high_nibbles(top[i]) : low_nibbles(top[i]);
      join_thirds(x[i], four, w);
    };
    out.template pieces<4, 2>(8 * half + side, make);
  }
  // Joins four fields of two bits with their third bits, from nibbles, two fields a byte by tables.
  [[gnu::always_inline]] static void join_thirds(Ints twos, Ints thirds, Ints w[4]) {
    constexpr int k0 = 1 << 2, k1 = 1 << 6;  // where the third bits go
    const __m128i low = _mm_setr_epi8(0, k0, 0, k0, k1, k0 + k1, k1, k0 + k1, 0, k0, 0, k0, k1,
                                      k0 + k1, k1, k0 + k1);
    const __m128i high = _mm_setr_epi8(0, 0, k0, k0, 0, 0, k0, k0, k1, k1, k0 + k1, k0 + k1, k1, k1,
                                       k0 + k1, k0 + k1);
    const Ints first = bit_or(bit_and(twos, bytes(0x33)), look_up(low, thirds));
    const Ints last = bit_or(bit_and(shr16(twos, 2), bytes(0x33)), look_up(high, thirds));
    w[0] = low_nibbles(first), w[1] = low_nibbles(last);
    w[2] = high_nibbles(first), w[3] = high_nibbles(last);
  }
  // Unpacks 16 scales of 6 bits, less 32, and d: the last of 16 bytes that begin two before them.
  template <class Out>
  [[gnu::always_inline]] static void unpack_scales(Rows blocks, Out& out) {
    Ints x[4], s[3], scales[4];
    transpose16(blocks + (offsetof(BlockQ3_K, scales) - 2), x);
    for (int i = 0; i < 3; i++) s[i] = bit_or(shr32(x[i], 16), shl32(x[i + 1], 16));
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
      const Ints low = i < 2 ? s[i] : shr16(s[i - 2], 4);
      scales[i] = sub8(join(low, shift_bits<4>(s[2], 2 * i), 0x30), bytes(32));
    }
    out.factors(high_half(x[3]) * floats(0x1p-8f), zero_floats());  // exact: scales are times 256
#pragma GCC unroll 16
    for (int g = 0; g < 16; g++)
      if constexpr (!Out::kPairsScales) out.whole_scale(g, large_scale(scales, g));
      else if (g % 2 == 0) out.two_scales(g / 2, two_large_bytes(scales, g));
  }
};

}  // namespace
}  // namespace sharpi::avx2
