// The value and the sign of every column by one look-up.
#pragma once
#include "grid_lookup.h"

namespace sharpi::avx512_vbmi {
namespace {

// bias + or - a magnitude, by the number of the magnitude and, in the bit above it, the sign; bits above do not matter.
template <int kMagnitudes>
struct alignas(64) SignedValues {
  static constexpr int kSignBit = kMagnitudes == 4 ? 2 : 3;
  uint8_t values[64];

  constexpr SignedValues(const uint8_t (&magnitudes)[kMagnitudes], int bias) : values() {
    for (int i = 0; i < 64; i++) {
      const int magnitude = magnitudes[i % kMagnitudes];
      values[i] = uint8_t(i & kMagnitudes ? bias - magnitude : bias + magnitude);
    }
  }
  // Numbers in the low bits of every byte; four signs of every dword from bit `sign` on.
  [[gnu::always_inline]] Ints of(Ints numbers, Ints signs, int sign) const {
    return look_up(load(values), take_bits(numbers, bits_from(signs, sign - kSignBit, 1), bytes(kMagnitudes - 1)));
  }
};

}  // namespace
}  // namespace sharpi::avx512_vbmi
