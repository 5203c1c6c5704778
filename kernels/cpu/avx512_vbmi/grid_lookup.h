// Looks up points of the IQ types' grids, 64 at a time: 128 bytes of a table are two registers.
#pragma once
#include "bits.h"
#include "iq_grids.h"

namespace sharpi::avx512_vbmi {
namespace {

// Returns a mask of the bytes whose bit i is set.
inline __mmask64 has_bit(Ints x, int i) { return _mm512_test_epi8_mask(x, bytes(1 << i)); }

// The numbers of 64 points: their low bytes, and masks of their bits from the eighth on; where
// needed also the high bytes, whose other bits are ignored.
struct Numbers {
  Ints low, high;
  __mmask64 bits[4];

  explicit Numbers(Ints low, __mmask64 ninth = 0, __mmask64 tenth = 0, __mmask64 eleventh = 0)
      : low(low), high(zero()), bits{_mm512_movepi8_mask(low), ninth, tenth, eleventh} {}
};

// Computes table[numbers] for two registers at once, because loading a table takes as long as
// looking up in it; one half of the table after the other, so that few results are live.
template <int kPoints>
[[gnu::always_inline]] inline void find(const uint8_t* table, const Numbers numbers[2],
                                        Ints found[2]) {
  constexpr int kHalf = kPoints / 2;
  if constexpr (kPoints == 128) {
    Ints a = load(table), b = load(table + kHalf);
    asm("" : "+v"(a), "+v"(b));  // otherwise each lookup loads them again, and loads are the limit
    for (int i = 0; i < 2; i++) found[i] = _mm512_permutex2var_epi8(a, numbers[i].low, b);
  } else {
    constexpr int kBit = __builtin_ctz(kHalf) - 7;
    Ints other[2];
    find<kHalf>(table, numbers, found);
    find<kHalf>(table + kHalf, numbers, other);
    for (int i = 0; i < 2; i++)
      found[i] = _mm512_mask_mov_epi8(found[i], numbers[i].bits[kBit], other[i]);
  }
}

// A grid's codes (iq_grids.h), split into first and last columns.
template <int kPoints>
struct alignas(64) ByteGrid {
  uint8_t first[kPoints], last[kPoints];

  constexpr explicit ByteGrid(const uint16_t (&codes)[kPoints]) : first(), last() {
    for (int i = 0; i < kPoints; i++)
      first[i] = uint8_t(codes[i]), last[i] = uint8_t(codes[i] >> 8);
  }
  [[gnu::always_inline]] void find_first(const Numbers numbers[2], Ints found[2]) const {
    find<kPoints>(first, numbers, found);
  }
  [[gnu::always_inline]] void find_last(const Numbers numbers[2], Ints found[2]) const {
    find<kPoints>(last, numbers, found);
  }
};

// A grid of 2048 codes in order, in which any aligned run of 16 codes has at most two different
// last columns: one before a change and one behind it.
struct alignas(64) GridInRuns {
  uint8_t first[2048], before[128], behind[128], change[128];

  constexpr explicit GridInRuns(const uint16_t (&codes)[2048])
      : first(), before(), behind(), change() {
    for (int i = 0; i < 2048; i++) first[i] = uint8_t(codes[i]);
    for (int run = 0; run < 128; run++) set_run(run, codes + 16 * run);
  }
  [[gnu::always_inline]] void find_first(const Numbers numbers[2], Ints found[2]) const {
    find<2048>(first, numbers, found);
  }
  [[gnu::always_inline]] void find_last(const Numbers numbers[2], Ints found[2]) const {
    for (int i = 0; i < 2; i++) {
      const Ints low = numbers[i].low, high = _mm512_slli_epi16(numbers[i].high, 4);
      const Ints run = choose_bits(bytes(15), _mm512_srli_epi16(low, 4), high);
      const auto of_run = [&](const uint8_t* table) {
        return _mm512_permutex2var_epi8(load(table), run, load(table + 64));
      };
      const __mmask64 changed = _mm512_cmpge_epu8_mask(low_nibbles(low), of_run(change));
      found[i] = _mm512_mask_mov_epi8(of_run(before), changed, of_run(behind));
    }
  }

 private:
  constexpr void set_run(int run, const uint16_t* codes) {
    before[run] = uint8_t(codes[0] >> 8), behind[run] = uint8_t(codes[15] >> 8);
    while (change[run] < 16 && codes[change[run]] >> 8 == before[run]) change[run]++;
    for (int i = change[run]; i < 16; i++)
      if (codes[i] >> 8 != behind[run])
        throw "this grid has shorter runs";  // no constant then: it does not compile
  }
};

// Codes of 64 points in each of two registers: with more, the results of large tables would not
// stay in registers.
struct Codes {
  Ints first[2], last[2];
};

// Calls put(pair, codes) for numbers_of(2 * pair) and numbers_of(2 * pair + 1), `count` in all.
template <class Grid, class NumbersOf, class Put>
[[gnu::always_inline]] inline void look_up_pairs(const Grid& grid, int count, NumbersOf numbers_of,
                                                 Put put) {
#pragma GCC unroll 1
  for (int pair = 0; pair < count / 2; pair++) {
    const Numbers numbers[2] = {numbers_of(2 * pair), numbers_of(2 * pair + 1)};
    Codes codes;
    grid.find_first(numbers, codes.first);
    grid.find_last(numbers, codes.last);
    put(pair, codes);
  }
}
// For points of eight columns: calls put(part, first, last) for numbers_of(part), 32 columns each.
template <class Grid, class NumbersOf, class Put>
[[gnu::always_inline]] inline void look_up_parts(const Grid& grid, NumbersOf numbers_of, Put put) {
  look_up_pairs(grid, 8, numbers_of, [&](int pair, const Codes& codes) {
    for (int i = 0; i < 2; i++) put(2 * pair + i, codes.first[i], codes.last[i]);
  });
}

constexpr ByteGrid<256> kIQ2XXSBytes(kIQ2XXSGrid), kIQ3XXSBytes(kIQ3XXSGrid);
constexpr ByteGrid<512> kIQ2XSBytes(kIQ2XSGrid), kIQ3SBytes(kIQ3SGrid);
constexpr ByteGrid<1024> kIQ2SBytes(kIQ2SGrid);
constexpr GridInRuns kIQ1Bytes(kIQ1SGrid);

}  // namespace
}  // namespace sharpi::avx512_vbmi
