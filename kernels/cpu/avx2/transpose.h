// Loads bytes of 8 rows and turns them, so that every row has one lane of a register.
#pragma once
#include "registers.h"

namespace sharpi::avx2 {
namespace {

// Rows at the same distance from each other, each read from the same offset.
struct Rows {
  const uint8_t* start;
  size_t stride;

  const uint8_t* at(int row) const { return start + row * stride; }
  Rows from(int row) const { return {at(row), stride}; }
  Rows operator+(size_t bytes) const { return {start + bytes, stride}; }
};

// Loads 4 bytes of each row: those of row r into dword r.
inline Ints gather4(Rows rows) {
  auto four = [&](int r) {
    return _mm_setr_epi32(load_dword(rows.at(r)), load_dword(rows.at(r + 1)),
                          load_dword(rows.at(r + 2)), load_dword(rows.at(r + 3)));
  };
  return halves(four(0), four(4));
}

// Loads the fp16 at the start of each row.
inline Floats gather_halves(Rows rows) {
  __m128i x = _mm_cvtsi32_si128(load_word(rows.at(0)));
  // One after the other, as compilers make twice as many instructions of all eight at once.
#define SHARPI_HALF(r) x = _mm_insert_epi16(x, load_word(rows.at(r)), r)
  SHARPI_HALF(1), SHARPI_HALF(2), SHARPI_HALF(3), SHARPI_HALF(4), SHARPI_HALF(5), SHARPI_HALF(6),
      SHARPI_HALF(7);
#undef SHARPI_HALF
  return from_half(x);
}

// Does the same by general registers, of which products of small blocks leave some idle.
inline Floats join_halves(Rows rows) {
  const auto four = [&](int r) {
    uint64_t x = load_word(rows.at(r + 3));
    for (int i = 2; i >= 0; i--) x = x << 16 | uint64_t(load_word(rows.at(r + i)));
    asm("" : "+r"(x));  // or the compiler inserts words one by one
    return int64_t(x);
  };
  return from_half(_mm_set_epi64x(four(4), four(0)));
}

// Loads the byte at the start of each row, as a dword.
inline Ints gather_bytes(Rows rows) {
  const auto at = [&](int r) { return *rows.at(r); };
  return dwords(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7));
}

// Loads 16 bytes of row i, then those of row i + 4.
inline Ints pair_of_rows(Rows rows, int i) { return load_halves(rows.at(i), rows.at(4 + i)); }

// Loads 16 bytes of each row: out[j] has bytes 4j..4j+3 of row r in dword r.
inline void transpose16(Rows rows, Ints out[4]) {
  Ints pair[4];
  for (int i = 0; i < 4; i++) pair[i] = pair_of_rows(rows, i);
  const Ints a = interleave_low32(pair[0], pair[1]);
  const Ints b = interleave_high32(pair[0], pair[1]);
  const Ints c = interleave_low32(pair[2], pair[3]);
  const Ints d = interleave_high32(pair[2], pair[3]);
  out[0] = interleave_low64(a, c);
  out[1] = interleave_high64(a, c);
  out[2] = interleave_low64(b, d);
  out[3] = interleave_high64(b, d);
}

// Loads kCount dwords of each row, which are a multiple of four: out[i] has dword i of every row.
template <int kCount>
[[gnu::always_inline]] inline void load_dwords(Rows rows, Ints out[kCount]) {
  static_assert(kCount % 4 == 0);
#pragma GCC unroll 4
  for (int i = 0; i < kCount; i += 4) transpose16(rows + 4 * i, out + i);
}

// Loads every second dword of each row, from the one after the first on: kCount of them.
template <int kCount>
[[gnu::always_inline]] inline void load_odd_dwords(Rows rows, Ints out[kCount]) {
  static_assert(kCount % 2 == 0);
#pragma GCC unroll 8
  for (int i = 0; i < kCount; i += 2) {
    Floats pair[4];
    for (int k = 0; k < 4; k++) pair[k] = as_floats(pair_of_rows(rows + 8 * i, k));
    const Floats a = shuffle_floats<0xdd>(pair[0], pair[1]);
    const Floats b = shuffle_floats<0xdd>(pair[2], pair[3]);
    out[i] = as_ints(shuffle_floats<0x88>(a, b));
    out[i + 1] = as_ints(shuffle_floats<0xdd>(a, b));
  }
}

}  // namespace
}  // namespace sharpi::avx2
