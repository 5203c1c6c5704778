// The positions of a page that the queries see, and how their scores become probabilities. Compiled
// with different target flags.
#pragma once
#include <algorithm>
#include <cmath>

#include "vector/simd.h"
#include "vector/vector_ops.h"

namespace {
using namespace sharpi;

inline Visible visible(const PageAttention& a, int query) {
  return {std::max(a.first[query], 0), std::min(a.last[query] + 1, kPage)};
}
// Returns the positions that any of the queries sees. It touches no others: an old value there may
// be infinite.
inline Visible visible(const PageAttention& a) {
  Visible all{kPage, 0};
  for (int n = 0; n < a.num_queries; n++) {
    const Visible v = visible(a, n);
    all = {std::min(all.begin, v.begin), std::max(all.end, v.end)};
  }
  return all;
}

constexpr float kHidden = -INFINITY;

// Returns the largest scores of a query, lane by lane, after soft-capping them and setting those of
// hidden positions to kHidden.
inline F32x16 lane_peaks(const PageAttention& a, int n, float* scores) {
  F32x16 peaks = broadcast(kHidden);
  const bool is_whole = a.first[n] <= 0 && a.last[n] >= kPage - 1 && !(a.soft_cap > 0);
  const F32x16 cap = broadcast(a.soft_cap);
#pragma GCC unroll 4
  for (int i = 0; i < kPage; i += kLanes) {
    F32x16 s = load(scores + i);
    if (!is_whole) {
      if (a.soft_cap > 0) s = cap * tanh(s / cap);
      s = keep_lanes(s, a.first[n] - i, a.last[n] - i, kHidden);
      store(scores + i, s);
    }
    peaks = max(peaks, s);
  }
  return peaks;
}

// Computes e^x of scores less their peak, with the error of `exp`.
[[gnu::always_inline]] inline F32x16 exp_of_scores(F32x16 x) {
#if defined(__AVX512DQ__)
  constexpr int kNearest = 8;
  const __m512 y = _mm512_mul_ps((__m512)x.part[0], _mm512_set1_ps(1.44269504f));
  const F32x16 r = {(Own)_mm512_reduce_ps(y, kNearest)};  // 0 for an infinity
  const __mmask16 is_some = _mm512_cmp_ps_mask(y, _mm512_set1_ps(-126.f), _CMP_NLT_UQ);
  const __m512 n = _mm512_roundscale_ps(y, kNearest);
  return {(Own)_mm512_maskz_scalef_ps(is_some, (__m512)power_of_fraction(r).part[0], n)};
#else
  return exp(x);
#endif
}

// Turns a query's scores into probabilities relative to its peak. Returns their sums by lane.
inline F32x16 lane_probabilities(float peak, float* scores) {
  F32x16 total{};
  if (peak == kHidden) {  // nothing visible
    memset(scores, 0, kPage * sizeof(float));
    return total;
  }
#pragma GCC unroll 4
  for (int i = 0; i < kPage; i += kLanes) {
    const F32x16 p = exp_of_scores(load(scores + i) - peak);
    store(scores + i, p);
    total += p;
  }
  return total;
}

// Returns the largest probability of each query's page: that of its largest score.
inline void largest_probabilities(const float* page_peaks, const float* peaks, int count,
                                  float* largest) {
  for (int n = 0; n < count; n += kOwnLanes) {
    F32x16 below{};
    below.part[0] = load_own(page_peaks + n) - load_own(peaks + n);
    const F32x16 all = exp_of_scores(below);
    store_own(largest + n, all.part[0]);
  }
  for (int n = 0; n < count; n++)
    if (page_peaks[n] == kHidden) largest[n] = 0;  // also where there is no peak yet
}

// Adds a page's part to a query's state.
inline float next_state(SoftmaxState& state, float peak, float total, float largest) {
  const float rescale = state.peak == peak ? 1.f : std::exp(state.peak - peak);
  state = {peak, state.total * rescale + total, largest};
  return rescale;
}

constexpr auto kAdd = [](Own x, Own y) { return x + y; };
constexpr auto kLarger = [](Own x, Own y) { return x > y ? x : y; };

constexpr int kMany = 5;  // queries

// Folds a vector of each query into `out` (kQueries): those of many together. The results are the
// same.
template <class Fold>
[[gnu::always_inline]] inline void fold_queries(Own vectors[kQueries], int count, Fold combine,
                                                float* out) {
  if (count < kMany) {
    for (int n = 0; n < count; n++) out[n] = fold_lanes<kOwnLanes / 2>(vectors[n], combine)[0];
    return;
  }
  for (int n = count; n < kQueries; n++) vectors[n] = vectors[0];
  fold_eight(vectors, combine, out);
}

constexpr int kPadded = 16;  // lanes that hold a number of each query, in whole vectors
static_assert(kQueries <= kPadded);

// Turns the scores of queries into probabilities relative to their new peaks, once they have any;
// computes the factors for their earlier sums.
inline void page_probabilities(const PageAttention& a, float scores[][kPage], float* rescale) {
  Own vectors[kQueries];
  float page_peaks[kPadded] = {}, peaks[kPadded] = {}, totals[kQueries], largest[kPadded];
  const int count = a.num_queries;
  for (int n = 0; n < count; n++) vectors[n] = fold_parts(lane_peaks(a, n, scores[n]), kLarger);
  fold_queries(vectors, count, kLarger, page_peaks);
  for (int n = 0; n < count; n++) {
    const float before = a.states[n]->peak;
    peaks[n] = before > page_peaks[n] ? before : page_peaks[n];  // lets a NaN through
    vectors[n] = fold_parts(lane_probabilities(peaks[n], scores[n]), kAdd);
  }
  largest_probabilities(page_peaks, peaks, count, largest);
  fold_queries(vectors, count, kAdd, totals);
  for (int n = 0; n < count; n++)
    rescale[n] = next_state(*a.states[n], peaks[n], totals[n], largest[n]);
}

}  // namespace
