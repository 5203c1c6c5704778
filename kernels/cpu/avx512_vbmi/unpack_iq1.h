// Unpacks points of -1, 0 and 1, shifted by an eighth, 16 rows at a time: IQ1_S, IQ1_M.
#pragma once
#include <cstddef>

#include "../avx512/iq_scales.h"
#include "grid_lookup.h"

namespace sharpi::avx512_vbmi {
namespace {

// A table of kIq1Bias + eight times the value: indexed by a number of two bits, with a third bit
// that is set where the point is shifted down.
struct alignas(64) MovedValues {
  uint8_t values[64];

  constexpr MovedValues() : values() {
    for (int i = 0; i < 64; i++) values[i] = uint8_t(8 * (i & 3) + (i & 4 ? 0 : 2));
  }
};
constexpr MovedValues kMovedValues;

// Returns the 16 bits of a part; every dword holds two parts.
[[gnu::always_inline]] inline Ints half_of(const Ints qh[4], int part) {
  return _mm512_srlv_epi32(qh[part / 2], dwords(part % 2 * 16));
}

// Returns the numbers of four points, whose three high bits are the lowest of every byte of `high`.
[[gnu::always_inline]] inline Numbers numbers_of_iq1(Ints low, Ints high) {
  Numbers numbers(low, has_bit(high, 0), has_bit(high, 1), has_bit(high, 2));
  numbers.high = high;
  return numbers;
}

// Unpacks 32 columns from the codes of four points, two bits per column. minus(k): a byte's bit 2
// is set where the columns from 4k on are shifted down.
template <class Minus, class Out>
[[gnu::always_inline]] inline void put_points(Ints first, Ints last, Minus minus, int part,
                                              Out& out) {
  const Ints values = load(kMovedValues.values);
  Ints w[8];
#pragma GCC unroll 8
  for (int k = 0; k < 8; k++) {
    const Ints code = bits_from(k % 2 ? last : first, k / 2 * 8, 2);
    w[k] = look_up(values, choose_bits(bytes(3), code, minus(k)));
  }
  out.weights(part, w);
}

struct UnpackIQ1_S {
  static constexpr TileKind kKind{32, false, kIq1Bias};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockIQ1_S);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const Floats d = first_halves(blocks);
    Ints qs[8], qh[4];
    transpose32(blocks + offsetof(BlockIQ1_S, qs), qs);
    transpose16(blocks + offsetof(BlockIQ1_S, qh), qh);
    const auto numbers = [&](int part) {
      return numbers_of_iq1(qs[part], bits_from(half_of(qh, part), 0, 3));
    };
    look_up_parts(kIQ1Bytes, numbers, [&](int part, Ints first, Ints last) {
      const Ints own = half_of(qh, part), minus = bits_from(own, 15 - 2, 0);
      out.scale(part, eighth_scale(d, _mm512_srli_epi32(own, 12)));
      put_points(first, last, [&](int) { return minus; }, part, out);
    });
  }
};

struct UnpackIQ1_M {
  static constexpr TileKind kKind{16, false, kIq1Bias};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(BlockIQ1_M);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    Ints qs[8], end[8];  // the last bytes of qs, then qh, scales
    transpose32(blocks + offsetof(BlockIQ1_M, qs), qs);
    transpose32(blocks + (sizeof(BlockIQ1_M) - 32), end);
    put_scales_of_iq1_m(end + 6, out);
    const Ints* qh = end + 2;
    const auto numbers = [&](int part) {
      return numbers_of_iq1(qs[part], bits_from(half_of(qh, part), 0, 4));
    };
    look_up_parts(kIQ1Bytes, numbers, [&](int part, Ints first, Ints last) {
      const Ints own = half_of(qh, part);
      put_points(
          first, last, [&](int k) { return bits_from(own, k / 2 * 4 + 3 - 2, 0); }, part, out);
    });
  }
};

}  // namespace
}  // namespace sharpi::avx512_vbmi
