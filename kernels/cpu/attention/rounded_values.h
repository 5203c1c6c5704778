// Sums a page's packed values with integer weights: the weight of a value, its probability times
// its block's scale, is rounded to 15 bits relative to the largest in the page.
#pragma once
#include "rounded_keys.h"

namespace {

// Probabilities of a query as parts of its largest one in the page, in units of 1 / kWhole.
constexpr float kWhole = 32767.f;
constexpr float kNothing = 1e-30f;  // a page whose largest probability is below adds nothing

// The weights of values in 16 bits, in pairs for positions that lie side by side.
typedef uint32_t WeightPairs[kPage / 2];

// Multiplies a query's shares by scales, and packs pairs of 16 bits for values 16 positions apart.
// Adding kMagic, 1.5 * 2^23, rounds to an integer, whose 16 bits are the lowest then.
inline void pair_weights(const float* shares, const ColumnScales& scales, WeightPairs& pairs) {
  constexpr float kMagic = 12582912.f;
  const auto weights = [&](int from) {
    const Own sum = load_own(shares + from) * load_own(scales.relative + from) + kMagic;
    OwnInts bits;
    memcpy(&bits, &sum, sizeof bits);
    return bits;
  };
  for (int half = 0; half < 2; half++)
    for (int i = 0; i < kPairApart; i += kOwnLanes) {
      const int at = half * kKvBlock + i;
      const OwnInts both = (weights(at) & 0xffff) | (weights(at + kPairApart) << 16);
      memcpy(pairs + half * kPairApart + i, &both, sizeof both);
    }
}

// Returns the sum of the minimums of visible positions, each times the query's probability.
inline float sum_minimums(const uint16_t* minimums, Visible range, const float* probabilities) {
  F32x16 total{};
  for (int i = 0; i < kPage; i += kLanes) {
    const F32x16 visible =
        keep_lanes(load_half(minimums + i), range.begin - i, range.end - 1 - i, 0.f);
    total += visible * load(probabilities + i);
  }
  return sum(total);
}

// A column's weights for all queries of a page.
struct ColumnWeights {
  alignas(64) WeightPairs pairs[kQueries];
  float unit[kQueries], added[kQueries];
};

// Computes pairs . values of N queries, for two vectors of a column's values from `words` on.
template <int N>
[[gnu::always_inline]] inline void column_products(const int16_t* words, Visible range,
                                                   const WeightPairs* pairs, Ahead ahead,
                                                   Wide products[N][2]) {
  for (int n = 0; n < N; n++) products[n][0] = products[n][1] = Wide{};
  for (int half = range.begin / kKvBlock; half * kKvBlock < range.end; half++) {
#pragma GCC unroll 4
    for (int p = 0; p < kPairApart; p++) {
      const int i = half * kPairApart + p;
      ahead.fetch(i);
      const int16_t* row = words + i * 2 * kKvBlock;
      const Wide low = load_wide(row), high = load_wide(row + 2 * kOwnLanes);
#pragma GCC unroll 8
      for (int n = 0; n < N; n++) {
        const Wide pair = all_words(pairs[n][i]);
        products[n][0] = add_words(products[n][0], low, pair);
        products[n][1] = add_words(products[n][1], high, pair);
      }
    }
  }
}

// Computes sums = sums * rescale + unit * pairs . values + added of N queries from `from`.
template <int N>
void column_of_queries(const PageAttention& a, const int16_t* words, Visible range,
                       const ColumnWeights& w, int from, const float* rescale, int column,
                       Ahead ahead) {
  for (int d = 0; d < kKvBlock; d += 2 * kOwnLanes) {
    Wide products[N][2];
    column_products<N>(words + 2 * d, range, w.pairs + from, ahead, products);
    ahead.at += kPage / 2 * ahead.step;
    for (int n = 0; n < N; n++)
      for (int i = 0; i < 2; i++) {
        float* sum = a.sums[from + n] + column + d + i * kOwnLanes;
        const Own before = load_own(sum) * rescale[from + n] + w.added[from + n];
        store_own(sum, to_floats(products[n][i]) * w.unit[from + n] + before);
      }
  }
}

// Probabilities of a page's queries as shares, and what a share of 1 stands for.
struct PageShares {
  alignas(64) float shares[kQueries][kPage];
  float unit[kQueries];

  PageShares(const float probabilities[][kPage], int count) {
    for (int n = 0; n < count; n++) {
      F32x16 peak = load(probabilities[n]);
      for (int i = kLanes; i < kPage; i += kLanes) peak = max(peak, load(probabilities[n] + i));
      const float largest = maximum(peak);
      const float inverse = largest > kNothing ? kWhole / largest : 0.f;
      for (int i = 0; i < kPage; i += kLanes)
        store(shares[n] + i, load(probabilities[n] + i) * inverse);
      unit[n] = largest > kNothing ? largest / kWhole : 0.f;
    }
  }
};

// Computes a column's weights. A query's rounding depends on its own positions alone: where it does
// not see what the scales of the page were computed for, it has its own.
inline void weigh_column(const PageAttention& a, const PageShares& shares, int column,
                         const float probabilities[][kPage], ColumnWeights& to) {
  const PackedValues& values = *a.packed_values;
  const ColumnScales& all = values.columns[values.column_apart ? column : 0];
  const uint16_t* minimums = scale_of(values, column) + values.minimum_apart;
  for (int n = 0; n < a.num_queries; n++) {
    ColumnScales own;
    const Visible range = visible(a, n);
    const bool is_same = range.begin == values.range.begin && range.end == values.range.end;
    if (!is_same) set_column_scales(scale_of(values, column), range, own);
    const ColumnScales& scales = is_same ? all : own;
    pair_weights(shares.shares[n], scales, to.pairs[n]);
    to.unit[n] = shares.unit[n] * scales.largest;
    to.added[n] = values.minimum_apart ? sum_minimums(minimums, range, probabilities[n]) : 0.f;
  }
}

// Adds a page's values for all columns. Meanwhile the second half of the next page's keys is
// prefetched.
void rounded_values(const PageAttention& a, Visible range, const float probabilities[][kPage],
                    const float* rescale) {
  const PageShares shares(probabilities, a.num_queries);
  const int columns = a.value_dim / kKvBlock;
  constexpr int kRows = kPage / 2 * kKvBlock / (2 * kOwnLanes);  // of a column
  const size_t half = a.key_bytes / 2;
  Ahead ahead(a.next ? a.next + half : nullptr, half, columns * kRows);
  for (int c = 0; c < columns; c++, ahead.at += kRows * ahead.step) {
    ColumnWeights weights;
    weigh_column(a, shares, c, probabilities, weights);
    in_parts(a.num_queries, [&](int from, auto n) {
      column_of_queries<n>(a, a.packed_values->words + size_t(c) * kColumnCodes, range, weights,
                           from, rescale, c * kKvBlock, from ? Ahead(nullptr, 0, 1) : ahead);
    });
  }
}

}  // namespace
