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
  // Does what Four does in four steps, 0 to 3, which take turns with other operations: processors
  // begin two of these in a cycle, and do not look far enough ahead to fill the rest of it.
  struct FourBySteps {
    Rows rows;
    Ints half[4], x[4];
    [[gnu::always_inline]] explicit FourBySteps(Rows rows = {}) : rows(rows) {}
    [[gnu::always_inline]] void step(int i) {
      if (i < 2) {
        const Ints a = pair_of_rows(rows, 2 * i), b = pair_of_rows(rows, 2 * i + 1);
        half[i] = interleave_low32(a, b), half[2 + i] = interleave_high32(a, b);
        settle(half[i]), settle(half[2 + i]);
      } else {
        const Ints a = half[2 * i - 4], b = half[2 * i - 3];
        x[2 * i - 4] = interleave_low64(a, b), x[2 * i - 3] = interleave_high64(a, b);
        settle(x[2 * i - 4]), settle(x[2 * i - 3]);
      }
    }
    [[gnu::always_inline]] void all_steps() { step(0), step(1), step(2), step(3); }
    [[gnu::always_inline]] Ints operator[](int i) const { return x[i]; }
  };

  static Ints bit_of_column(int i) { return dwords(i % 2 ? int(0x80402010) : 0x08040201); }
  // The scale in the first two bytes of each row, and 32 columns' bits from byte kFirst on.
  template <int kFirst>
  struct ScaleAndBits {
    Rows rows;
    Ints bits;
    [[gnu::always_inline]] explicit ScaleAndBits(Rows rows)
        : rows(rows), bits(gather4(rows + kFirst)) {}
    Floats scale() const { return gather_halves(rows); }
    // Returns each column's byte for register i of half h; bit_of_column() is the mask of its bit.
    Ints byte_of_column(int i, int h) const {
      return shuffle_bytes(bits, repeat_byte(2 * h + i / 2));
    }
  };
};

// Register i holds the columns of row i and, in the upper half, those of row i + 4.
struct PairedRows {
  struct Four {
    Rows rows;
    [[gnu::always_inline]] explicit Four(Rows rows) : rows(rows) {}
    [[gnu::always_inline]] Ints operator[](int i) const { return pair_of_rows(rows, i); }
  };

  static Ints bit_of_column(int) { return qwords(int64_t(0x8040201008040201)); }
  template <int kFirst>
  struct ScaleAndBits {
    Ints first[2];  // 8 bytes of rows 0, 1, 4, 5, and of rows 2, 3, 6, 7
    [[gnu::always_inline]] explicit ScaleAndBits(Rows rows) {
      for (int i = 0; i < 2; i++)
        first[i] =
            load_spaced_qwords(rows.at(2 * i), rows.at(2 * i + 1), rows.at(2 * i + 4),
                               rows.at(2 * i + 5));  // what is read before a row is another row's
    }
    Floats scale() const {
      return low_half(as_ints(shuffle_floats<0x88>(as_floats(first[0]), as_floats(first[1]))));
    }
    Ints byte_of_column(int i, int h) const {
      const int64_t every = 0x0101010101010101, from = every * (i % 2 * 8 + kFirst + 2 * h);
      return shuffle_bytes(first[i / 2], qwords(from, from + every, from, from + every));
    }
  };
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
