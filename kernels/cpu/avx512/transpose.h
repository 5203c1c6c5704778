// Transposes bytes of 16 rows so that every row has one lane of a register.
#pragma once
#include "registers.h"

namespace sharpi::avx512 {
namespace {

// Rows of blocks, `stride` bytes apart. Functions here take the first 16: as four bases, three
// steps and a displacement their addresses are operands of the loads, and need no registers of
// their own.
struct Rows {
  const uint8_t* first;
  size_t stride;
  ptrdiff_t offset = 0;

  [[gnu::always_inline]] const uint8_t* at(int row) const {
    const uint8_t* base = first + (row & ~3) * stride;
    asm("" : "+r"(base));  // otherwise the compiler keeps 16 addresses, most of them in memory
    return base + (row & 3) * stride + offset;
  }
  Rows from(int row) const { return {first + row * stride, stride, offset}; }
  Rows operator+(size_t bytes) const { return {first, stride, offset + ptrdiff_t(bytes)}; }
};

// Transposes four rows of four dwords within each 128-bit lane: out[j] has dword j of rows 0..3.
[[gnu::always_inline]] inline void transpose_lanes(const Ints rows[4], Ints out[4]) {
  const Ints a = _mm512_unpacklo_epi32(rows[0], rows[1]),
             b = _mm512_unpackhi_epi32(rows[0], rows[1]);
  const Ints c = _mm512_unpacklo_epi32(rows[2], rows[3]),
             d = _mm512_unpackhi_epi32(rows[2], rows[3]);
  out[0] = _mm512_unpacklo_epi64(a, c);
  out[1] = _mm512_unpackhi_epi64(a, c);
  out[2] = _mm512_unpacklo_epi64(b, d);
  out[3] = _mm512_unpackhi_epi64(b, d);
}

// Gathers 4 bytes of each row: row r into dword r. Broadcasts and blends need no shuffle port.
[[gnu::always_inline]] inline Ints gather4(Rows rows) {
  const auto at = [&](int r) { return _mm256_set1_epi32(load_dword(rows.at(r))); };
  const auto eight = [&](int r) {
    const __m256i a = _mm256_blend_epi32(at(r), at(r + 1), 0x02);
    const __m256i b = _mm256_blend_epi32(at(r + 2), at(r + 3), 0x08);
    const __m256i c = _mm256_blend_epi32(at(r + 4), at(r + 5), 0x20);
    const __m256i d = _mm256_blend_epi32(at(r + 6), at(r + 7), 0x80);
    return _mm256_blend_epi32(_mm256_blend_epi32(a, b, 0x0c), _mm256_blend_epi32(c, d, 0xc0), 0xf0);
  };
  return _mm512_inserti64x4(_mm512_castsi256_si512(eight(0)), eight(8), 1);
}

// Transposes 16 bytes of each row: out[j] has bytes 4j..4j+3 of row r in dword r. Masked broadcasts
// need no shuffle port.
[[gnu::always_inline]] inline void transpose16(Rows rows, Ints out[4]) {
  auto at = [&](int row) { return _mm_loadu_si128((const __m128i*)rows.at(row)); };
  Ints r[4];
  for (int i = 0; i < 4; i++) {
    r[i] = _mm512_mask_broadcast_i32x4(_mm512_castsi128_si512(at(i)), 0x00f0, at(4 + i));
    r[i] = _mm512_mask_broadcast_i32x4(r[i], 0x0f00, at(8 + i));
    r[i] = _mm512_mask_broadcast_i32x4(r[i], 0xf000, at(12 + i));
  }
  transpose_lanes(r, out);
}

// Transposes 32 bytes of each row: out[j] has bytes 4j..4j+3 of row r in dword r.
[[gnu::always_inline]] inline void transpose32(Rows rows, Ints out[8]) {
  auto at = [&](int row) { return _mm256_loadu_si256((const __m256i*)rows.at(row)); };
  Ints r[4], t[2][4];
  for (int h = 0; h < 2; h++) {  // 8 rows at a time
    for (int i = 0; i < 4; i++)
      r[i] = _mm512_mask_broadcast_i64x4(_mm512_castsi256_si512(at(8 * h + i)), 0xf0,
                                         at(8 * h + 4 + i));
    transpose_lanes(r, t[h]);
  }
  for (int j = 0; j < 4; j++) {
    out[j] = _mm512_shuffle_i32x4(t[0][j], t[1][j], 0x88);
    out[4 + j] = _mm512_shuffle_i32x4(t[0][j], t[1][j], 0xdd);
  }
}

// Transposes 64 bytes of each row, likewise.
[[gnu::always_inline]] inline void transpose64(Rows rows, Ints out[16]) {
  for (int half = 0; half < 2; half++) transpose32(rows + 32 * half, out + 8 * half);
}

}  // namespace
}  // namespace sharpi::avx512
