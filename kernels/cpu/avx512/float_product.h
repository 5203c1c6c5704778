// Products with float32 activations: weights of F32, F16, BF16, and of any type converted to float.
//
// Lanes are columns. Each row and token has one register of sums, over the columns in order, folded
// at the end: the same additions however rows and tokens are grouped.
#pragma once
#include <algorithm>

#include "matmul/float_rows.h"
#include "registers.h"
#include "runtime/read_ahead.h"

namespace sharpi::avx512 {
namespace {

constexpr int kRowsAtOnce = 8, kTokensAtOnce = 6;

struct F32 {
  static constexpr int kBytes = 4;
  static Floats load(const uint8_t* p) { return _mm512_loadu_ps(p); }
  static Floats load(const uint8_t* p, __mmask16 mask) { return _mm512_maskz_loadu_ps(mask, p); }
};

struct F16 {
  static constexpr int kBytes = 2;
  static Floats load(const uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
  }
  static Floats load(const uint8_t* p, __mmask16 mask) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p));
  }
};

struct BF16 {
  static constexpr int kBytes = 2;
  static Floats widen(__m256i x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
  }
  static Floats load(const uint8_t* p) { return widen(_mm256_loadu_si256((const __m256i*)p)); }
  static Floats load(const uint8_t* p, __mmask16 mask) {
    return widen(_mm256_maskz_loadu_epi16(mask, p));
  }
};

// Computes out[n][r] = row r . token n.
template <class Weight, int kRows, int kTokens>
[[gnu::noinline]] void dot_products(const uint8_t* const* rows, const void* const* tokens,
                                    int columns, float* out, ReadAhead& ahead) {
  Floats sum[kRows][kTokens];
  for (auto& row : sum)
    for (Floats& s : row) s = _mm512_setzero_ps();
  const auto step = [&](int c, auto... mask) {
    Floats w[kRows];
    for (int r = 0; r < kRows; r++)
      w[r] = Weight::load(rows[r] + size_t(c) * Weight::kBytes, mask...);
    for (int n = 0; n < kTokens; n++) {
      const Floats x = F32::load((const uint8_t*)((const float*)tokens[n] + c), mask...);
      for (int r = 0; r < kRows; r++) sum[r][n] = _mm512_fmadd_ps(w[r], x, sum[r][n]);
    }
    ahead.advance();
  };
  int c = 0;
  for (; c + 16 <= columns; c += 16) step(c);
  if (c < columns) step(c, __mmask16((1 << (columns - c)) - 1));
  for (int n = 0; n < kTokens; n++)
    for (int r = 0; r < kRows; r++) out[n * kTileRows + r] = _mm512_reduce_add_ps(sum[r][n]);
}

// Multiplies eight rows with up to six tokens, within 32 registers.
template <class Weight, int kTokens>
void eight_rows(const uint8_t* const* rows, const void* const* tokens, int columns, float* out,
                ReadAhead& ahead) {
  constexpr int kRows = kTokens <= 2 ? kRowsAtOnce : kRowsAtOnce / 2;
  for (int r = 0; r < kRowsAtOnce; r += kRows)
    dot_products<Weight, kRows, kTokens>(rows + r, tokens, columns, out + r, ahead);
}

template <class Weight>
void eight_rows_all_tokens(const Product& p, const uint8_t* const* rows, float* out,
                           ReadAhead ahead) {
  constexpr decltype(&eight_rows<Weight, 1>) kSizes[kTokensAtOnce] = {
      eight_rows<Weight, 1>, eight_rows<Weight, 2>, eight_rows<Weight, 3>,
      eight_rows<Weight, 4>, eight_rows<Weight, 5>, eight_rows<Weight, 6>};
  over_tokens(p.num_tokens, kTokensAtOnce, [&](int from, int count) {
    kSizes[count - 1](rows, p.tokens + from, p.num_columns, out + from * kTileRows, ahead);
  });
}

// Returns a lower bound on the steps of dot_products for eight rows and all tokens.
inline int count_steps(const Product& p) {
  return count_calls(p.num_tokens, kTokensAtOnce) * std::max(1, p.num_columns / 16);
}

template <class Weight>
void float_product(const Product& p) {
  const size_t piece = kRowsAtOnce * p.row_bytes;
  for (int first = 0; first < p.num_rows; first += kRowsAtOnce) {
    const uint8_t* rows[kRowsAtOnce];
    for (int r = 0; r < kRowsAtOnce; r++)
      rows[r] = p.rows + std::min(first + r, p.num_rows - 1) * p.row_bytes;
    const uint8_t* then =
        first + kRowsAtOnce < p.num_rows ? p.rows + first * p.row_bytes + piece : p.next;
    if (then) find_pages(then, piece);
    eight_rows_all_tokens<Weight>(p, rows, p.out + first, read_ahead(then, piece, count_steps(p)));
  }
}

// Multiplies quantised weights, eight rows converted to float at a time. For parity tests: not
// fast.
template <QuantType kType>
void exact_product(const Product& p) {
  static thread_local FloatRows buffer;
  float* weights = buffer.at_least(size_t(kRowsAtOnce) * p.num_columns);
  for (int first = 0; first < p.num_rows; first += kRowsAtOnce) {
    const uint8_t* rows[kRowsAtOnce];
    for (int r = 0; r < kRowsAtOnce; r++) {
      float* row = weights + size_t(r) * p.num_columns;
      const int source = std::min(first + r, p.num_rows - 1);
      kPortableMatmul.dequantise(kType, p.rows + source * p.row_bytes, p.num_columns, row);
      rows[r] = (const uint8_t*)row;
    }
    eight_rows_all_tokens<F32>(p, rows, p.out + first, {});
  }
}

}  // namespace
}  // namespace sharpi::avx512
