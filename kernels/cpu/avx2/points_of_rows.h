// Looks up the grid points of the IQ types, row by row.
#pragma once
#include "quant/iq_points.h"
#include "token_block.h"
#include "transpose.h"

namespace sharpi::avx2 {
namespace {

// The points of a whole block, turned (iq_points.h).
template <class Points>
struct Turned : TurnedPoints<Points, kLanes> {
  [[gnu::noinline]] explicit Turned(Rows blocks) {
    for (int r = 0; r < kLanes; r++) this->set_row(r, blocks.at(r));
  }
  // Loads 32 columns from 32 * part on.
  void load(int part, Ints w[8]) const {
    for (int k = 0; k < 8; k++) {
      if constexpr (sizeof(typename Points::Point) == 4) {
        w[k] = avx2::load(this->points[8 * part + k]);
      } else {
        const auto* both = reinterpret_cast<const float*>(this->points[4 * part + k / 2]);
        const Floats a = load_floats(both), b = load_floats(both + 8);
        const Floats four = k % 2 ? shuffle_floats<0xdd>(a, b) : shuffle_floats<0x88>(a, b);
        w[k] = as_ints(four);
      }
    }
  }
};

// Returns the points of 32 columns of one row; number(i) is the index of point i in the grid.
// kJoin: points of 8 bytes are joined with fewer instructions, which is faster where indices are
// made first.
template <class Points, bool kJoin, class Number>
[[gnu::always_inline]] inline Ints points_of_row(Number number) {
  if constexpr (sizeof(typename Points::Point) == 8) {
    const auto at = [&](int i) __attribute__((always_inline)) { return Points::at(number(i)); };
    return kJoin ? join_qwords(at(0), at(1), at(2), at(3))
                 : load_qwords(at(0), at(1), at(2), at(3));
  } else {
    const auto at = [&](int i)
                        __attribute__((always_inline)) { return int(*Points::at(number(i))); };
    return dwords(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7));
  }
}

// Reads the indices of points from the blocks, one by one.
template <class Points>
struct NumbersInPlace {
  static constexpr unsigned kCount = 32 / sizeof(typename Points::Point);  // of a part
  const Rows blocks;

  template <class Type>
  NumbersInPlace(const Type&, Rows blocks) : blocks(blocks) {}
  [[gnu::always_inline]] Ints row(int part, int r) const {
    const uint8_t* block = blocks.at(r);
    asm(""
        : "+r"(block));  // else each of its bytes has an address of its own, most of them in memory
    return points_of_row<Points, false>(
        [&](int i) { return Points::number(block, kCount * unsigned(part) + unsigned(i)); });
  }
};

// Reads them from 64 bytes of each block that begin at kFirst: words, whose low bits `kMask` they
// are. All of a block's are masked at once.
template <class Points, int kFirst, int kMask>
struct NumbersInWords {
  alignas(32) uint16_t numbers[kLanes][4 * kParts];

  template <class Type>
  [[gnu::always_inline]] NumbersInWords(const Type&, Rows blocks) {
#pragma GCC unroll 8
    for (int r = 0; r < kLanes; r++)
      for (int half = 0; half < 2; half++) {
        const uint8_t* at = blocks.at(r) + kFirst + 32 * half;
        store(numbers[r] + 16 * half, bit_and(load_halves(at, at + 16), words(kMask)));
      }
  }
  [[gnu::always_inline]] Ints row(int part, int r) const {
    return points_of_row<Points, true>([&](int i) { return numbers[r][4 * part + i]; });
  }
};

// Builds the indices of a whole block first, as their bits are in two places: the type's
// low(part, i) and high(part, i) have a byte each for points 4i..4i+3 in a row's dword.
template <class Points>
struct NumbersMade {
  static constexpr int kFours = 8 / sizeof(typename Points::Point);
  alignas(32) uint16_t numbers[kParts][kFours][4 * kLanes];

  template <class Type>
  [[gnu::always_inline]] NumbersMade(const Type& type, Rows) {
#pragma GCC unroll 8
    for (int part = 0; part < kParts; part++)
      for (int i = 0; i < kFours; i++) {
        const Ints low = type.low(part, i), high = type.high(part, i);
        store(numbers[part][i], interleave_low8(low, high));
        store(numbers[part][i] + 16, interleave_high8(low, high));
      }
  }
  [[gnu::always_inline]] Ints row(int part, int r) const {
    const int at = r / 2 % 2 * 16 + r / 4 * 8 + r % 2 * 4;
    return points_of_row<Points, true>([&](int i) { return numbers[part][i / 4][at + i % 4]; });
  }
};

}  // namespace
}  // namespace sharpi::avx2
