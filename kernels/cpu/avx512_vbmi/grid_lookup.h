// Points of the IQ types' grids, looked up 64 at a time: 128 bytes of a table are two registers.
#pragma once
#include "bits.h"
#include "iq_grids.h"

namespace sharpi::avx512_vbmi {
namespace {

// A grid's codes (iq_grids.h), taken apart: first and last columns.
template <int kPoints>
struct alignas(64) ByteGrid {
  uint8_t first[kPoints], last[kPoints];

  constexpr explicit ByteGrid(const uint16_t (&codes)[kPoints]) : first(), last() {
    for (int i = 0; i < kPoints; i++) first[i] = uint8_t(codes[i]), last[i] = uint8_t(codes[i] >> 8);
  }
};

// Whether bit i of every byte is set.
inline __mmask64 has_bit(Ints x, int i) { return _mm512_test_epi8_mask(x, bytes(1 << i)); }

// Numbers of 64 points: their low bytes, and which of them have the bits from the eighth on.
struct Numbers {
  Ints low;
  __mmask64 bits[4];

  Numbers() = default;
  explicit Numbers(Ints low, __mmask64 ninth = 0, __mmask64 tenth = 0, __mmask64 eleventh = 0)
      : low(low), bits{_mm512_movepi8_mask(low), ninth, tenth, eleventh} {}
};

// table[numbers] for some registers at once, as loading a table takes as long as looking up in it; one half of the table
// after the other, so that few results wait.
template <int kPoints, int kCount>
[[gnu::always_inline]] inline void find(const uint8_t* table, const Numbers (&numbers)[kCount], Ints (&found)[kCount]) {
  constexpr int kHalf = kPoints / 2;
  if constexpr (kPoints == 128) {
    Ints a = load(table), b = load(table + kHalf);
    if (kCount > 1) asm("" : "+v"(a), "+v"(b));  // else each look-up loads them again, and loads are the limit
    for (int i = 0; i < kCount; i++) found[i] = _mm512_permutex2var_epi8(a, numbers[i].low, b);
  } else {
    constexpr int kBit = __builtin_ctz(kHalf) - 7;
    Ints other[kCount];
    find<kHalf>(table, numbers, found);
    find<kHalf>(table + kHalf, numbers, other);
    for (int i = 0; i < kCount; i++) found[i] = _mm512_mask_mov_epi8(found[i], numbers[i].bits[kBit], other[i]);
  }
}

// Codes of 64 points in each register.
template <int kCount>
struct Codes {
  Ints first[kCount], last[kCount];
};

// Calls put(step, codes) for all numbers_of(i), 0 <= i < count, kAtOnce in a step.
template <int kAtOnce, int kPoints, class NumbersOf, class Put>
[[gnu::always_inline]] inline void look_up_all(const ByteGrid<kPoints>& grid, int count, NumbersOf numbers_of, Put put) {
#pragma GCC unroll 1
  for (int step = 0; step < count / kAtOnce; step++) {
    Numbers numbers[kAtOnce];
    for (int i = 0; i < kAtOnce; i++) numbers[i] = numbers_of(step * kAtOnce + i);
    Codes<kAtOnce> codes;
    find<kPoints>(grid.first, numbers, codes.first);
    find<kPoints>(grid.last, numbers, codes.last);
    put(step, codes);
  }
}

constexpr ByteGrid<256> kIQ2XXSBytes(kIQ2XXSGrid), kIQ3XXSBytes(kIQ3XXSGrid);
constexpr ByteGrid<512> kIQ2XSBytes(kIQ2XSGrid), kIQ3SBytes(kIQ3SGrid);
constexpr ByteGrid<1024> kIQ2SBytes(kIQ2SGrid);
constexpr ByteGrid<2048> kIQ1Bytes(kIQ1SGrid);

}  // namespace
}  // namespace sharpi::avx512_vbmi
