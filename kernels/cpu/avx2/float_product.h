// Products with float32 activations: weights of F32, F16 and BF16, and any quantised type made
// float.
//
// Lanes are columns. A row and a token have one register of sums, over the columns in order, folded
// at the end: the same additions however rows and tokens are grouped.
#pragma once
#include <algorithm>

#include "matmul/float_rows.h"
#include "registers.h"
#include "runtime/read_ahead.h"

namespace sharpi::avx2 {
namespace {

constexpr int kFloatRows = 8;    // share what is read ahead
constexpr int kFloatTokens = 3;  // with four rows: twelve sums and their operands

struct F32 {
  static constexpr int kBytes = 4;
  static Floats load(const uint8_t* p) { return load_any_floats((const float*)p); }
};
struct F16 {
  static constexpr int kBytes = 2;
  static Floats load(const uint8_t* p) { return from_half(_mm_loadu_si128((const __m128i*)p)); }
};
struct BF16 {
  static constexpr int kBytes = 2;
  static Floats load(const uint8_t* p) {
    const Ints wide = load_unsigned_words(p);
    return as_floats(shl32(wide, 16));
  }
};

// Loads the first `count` of eight values; the others are zero.
template <class Weight>
inline Floats load_some(const uint8_t* p, int count) {
  uint8_t bytes[8 * Weight::kBytes] = {};
  memcpy(bytes, p, size_t(count) * Weight::kBytes);
  return Weight::load(bytes);
}

inline float fold(Floats x) {
  __m128 sum = sum_of_halves(x);
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}

// Computes out[n][r] = row r . token n.
template <class Weight, int kRows, int kTokens>
[[gnu::noinline]] void dot_products(const uint8_t* const* rows, const void* const* tokens,
                                    int columns, float* out, ReadAhead& ahead) {
  const uint8_t *row[kRows], *token[kTokens];  // own copies: `ahead` cannot alias them
  Floats sum[kRows][kTokens];
  for (int n = 0; n < kTokens; n++) token[n] = (const uint8_t*)tokens[n];
  for (int r = 0; r < kRows; r++) {
    row[r] = rows[r];
    for (Floats& s : sum[r]) s = zero_floats();
  }
  const auto step = [&](auto weight, auto activation) {
    Floats x[kTokens];
    for (int n = 0; n < kTokens; n++) x[n] = activation(token[n]);
    for (int r = 0; r < kRows; r++) {
      Floats w = weight(row[r]);
      settle(w);  // one row after the other: all at once would not fit 16 registers
      for (int n = 0; n < kTokens; n++) sum[r][n] = multiply_add(w, x[n], sum[r][n]);
    }
    ahead.advance();
  };
  int c = 0;
  for (; c + 8 <= columns; c += 8)
    step([=](const uint8_t* p) { return Weight::load(p + size_t(c) * Weight::kBytes); },
         [=](const uint8_t* p) { return F32::load(p + size_t(c) * 4); });
  if (const int count = columns - c)
    step([=](const uint8_t* p) { return load_some<Weight>(p + size_t(c) * Weight::kBytes, count); },
         [=](const uint8_t* p) { return load_some<F32>(p + size_t(c) * 4, count); });
  for (int n = 0; n < kTokens; n++)
    for (int r = 0; r < kRows; r++) out[n * kTileRows + r] = fold(sum[r][n]);
}

// Multiplies eight rows with up to three tokens, within 16 registers.
template <class Weight, int kTokens>
void eight_rows(const uint8_t* const* rows, const void* const* tokens, int columns, float* out,
                ReadAhead& ahead) {
  constexpr int kRows = (kTokens == 1 ? 8 : 4) / (kTwoRegisters ? 2 : 1);
  for (int r = 0; r < kFloatRows; r += kRows)
    dot_products<Weight, kRows, kTokens>(rows + r, tokens, columns, out + r, ahead);
}

template <class Weight>
void eight_rows_all_tokens(const Product& p, const uint8_t* const* rows, float* out,
                           ReadAhead ahead) {
  constexpr decltype(&eight_rows<Weight, 1>) kSizes[kFloatTokens] = {
      eight_rows<Weight, 1>, eight_rows<Weight, 2>, eight_rows<Weight, 3>};
  over_tokens(p.num_tokens, kFloatTokens, [&](int from, int count) {
    kSizes[count - 1](rows, p.tokens + from, p.num_columns, out + from * kTileRows, ahead);
  });
}

// Returns the least number of steps that dot_products takes for eight rows and all tokens.
inline int count_steps(const Product& p) {
  return count_calls(p.num_tokens, kFloatTokens) * std::max(1, p.num_columns / 8);
}

template <class Weight>
void float_product(const Product& p) {
  const size_t piece = kFloatRows * p.row_bytes;
  for (int first = 0; first < p.num_rows; first += kFloatRows) {
    const uint8_t* rows[kFloatRows];
    for (int r = 0; r < kFloatRows; r++)
      rows[r] = p.rows + std::min(first + r, p.num_rows - 1) * p.row_bytes;
    const uint8_t* then =
        first + kFloatRows < p.num_rows ? p.rows + first * p.row_bytes + piece : p.next;
    if (then) find_pages(then, piece);
    eight_rows_all_tokens<Weight>(p, rows, p.out + first, read_ahead(then, piece, count_steps(p)));
  }
}

// Multiplies quantised weights, made float eight rows at a time: for parity tests, not for speed.
template <QuantType kType>
void exact_product(const Product& p) {
  static thread_local FloatRows buffer;
  float* weights = buffer.at_least(size_t(kFloatRows) * p.num_columns);
  for (int first = 0; first < p.num_rows; first += kFloatRows) {
    const uint8_t* rows[kFloatRows];
    for (int r = 0; r < kFloatRows; r++) {
      float* row = weights + size_t(r) * p.num_columns;
      const int source = std::min(first + r, p.num_rows - 1);
      kPortableMatmul.dequantise(kType, p.rows + source * p.row_bytes, p.num_columns, row);
      rows[r] = (const uint8_t*)row;
    }
    eight_rows_all_tokens<F32>(p, rows, p.out + first, {});
  }
}

}  // namespace
}  // namespace sharpi::avx2
