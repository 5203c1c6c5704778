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

// Returns the number of row 0, 1, 4 or 5 of eight for j = 0, else of the row two after it.
constexpr int row_of_four(int i, int j) { return i / 2 * 4 + i % 2 + 2 * j; }

// Returns the points of columns 8g..8g+7 of four rows. number(r, i) is the index in the grid of
// point i of row r's part.
template <class Points, class Number>
[[gnu::always_inline]] inline Ints points_of_eight(int g, int j, Number number) {
  const auto at = [&](int i, int point) __attribute__((always_inline)) {
    return Points::at(number(row_of_four(i, j), point));
  };
  if constexpr (sizeof(typename Points::Point) == 8)
    return load_qwords(at(0, g), at(1, g), at(2, g), at(3, g));
  else
    return load_dwords(at(0, 2 * g), at(0, 2 * g + 1), at(1, 2 * g), at(1, 2 * g + 1), at(2, 2 * g),
                       at(2, 2 * g + 1), at(3, 2 * g), at(3, 2 * g + 1));
}

// Copies the bytes that are points' indices from the blocks, 64 of each from kFirst on, as all rows
// then have addresses at known distances. A part has eight of them.
template <class Points, int kFirst>
struct NumbersCopied {
  uint8_t numbers[kLanes][kParts][8];

  template <class Type>
  [[gnu::always_inline]] NumbersCopied(const Type&, Rows blocks) {
#pragma GCC unroll 8
    for (int r = 0; r < kLanes; r++) memcpy(numbers[r], blocks.at(r) + kFirst, 64);
  }
  [[gnu::always_inline]] Ints eight(int part, int g, int j) const {
    return points_of_eight<Points>(
        g, j, [&](int r, int i) __attribute__((always_inline)) { return numbers[r][part][i]; });
  }
};

// Stores the indices of a whole block first: two_numbers(i) of the type has those of points 2i and
// 2i + 1 in a row's dword.
template <class Points>
struct NumbersInWords {
  alignas(32) uint16_t numbers[2 * kParts][kLanes][2];

  template <class Type>
  [[gnu::always_inline]] NumbersInWords(const Type& type, Rows) {
#pragma GCC unroll 16
    for (int i = 0; i < 2 * kParts; i++) store(numbers[i], type.two_numbers(i));
  }
  [[gnu::always_inline]] Ints eight(int part, int g, int j) const {
    return points_of_eight<Points>(g, j, [&](int r, int i) __attribute__((always_inline)) {
      return numbers[2 * part + i / 2][r][i % 2];
    });
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
  [[gnu::always_inline]] Ints eight(int part, int g, int j) const {
    return points_of_eight<Points>(g, j, [&](int r, int i) __attribute__((always_inline)) {
      return numbers[part][i / 4][r / 2 % 2 * 16 + r / 4 * 8 + r % 2 * 4 + i % 4];
    });
  }
};

}  // namespace
}  // namespace sharpi::avx2
