// Two layouts of 16 columns of 8 rows in four registers: turned, as tiles take them, or pairs of
// rows.
//
// Unpackers do the same to every byte in both. One token is multiplied with pairs of rows, as it
// costs less to turn the products than the weights.
#pragma once
#include "transpose.h"

namespace sharpi::avx2 {
namespace {

// Register i holds columns 4i..4i+3, with row r in dword r.
struct TurnedRows {
  // Loads 16 bytes of each row.
  struct Four {
    Ints x[4];
    [[gnu::always_inline]] explicit Four(Rows rows) { transpose16(rows, x); }
    Ints operator[](int i) const { return x[i]; }
  };

  // With 32 columns' bits in dword r for row r: the shuffle that gives register i of half h each
  // column's byte, and the mask of its bit.
  static Ints byte_of_column(int i, int h) { return repeat_byte(2 * h + i / 2); }
  static Ints bit_of_column(int i) { return dwords(i % 2 ? int(0x80402010) : 0x08040201); }
};

// Register i holds the columns of row i and, in the upper half, those of row i + 4.
struct PairedRows {
  struct Four {
    Rows rows;
    [[gnu::always_inline]] explicit Four(Rows rows) : rows(rows) {}
    [[gnu::always_inline]] Ints operator[](int i) const { return pair_of_rows(rows, i); }
  };

  static Ints byte_of_column(int i, int h) {
    const int64_t every = 0x0101010101010101, first = every * (4 * i + 2 * h);
    return qwords(first, first + every, first, first + every);
  }
  static Ints bit_of_column(int) { return qwords(int64_t(0x8040201008040201)); }
};

// Returns a function that unpacks register i of the low and of the high nibbles of 16 bytes.
template <class Layout>
[[gnu::always_inline]] inline auto split_nibbles(Rows packed) {
  return [x = typename Layout::Four(packed)](int i, Ints w[2]) __attribute__((always_inline)) {
    const Ints both = x[i];
    w[0] = low_nibbles(both), w[1] = high_nibbles(both);
  };
}

}  // namespace
}  // namespace sharpi::avx2
