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
// Returns the positions that any of the queries sees. No others are touched: an old value there may
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

// Returns a query's largest score, after soft-capping them and setting those of hidden positions to
// kHidden.
inline float page_peak(const PageAttention& a, int n, float* scores) {
  F32x16 peaks = broadcast(kHidden);
  const F32x16 cap = broadcast(a.soft_cap);
  for (int i = 0; i < kPage; i += kLanes) {
    F32x16 s = load(scores + i);
    if (a.soft_cap > 0) s = cap * tanh(s / cap);
    if (i < a.first[n] || i + kLanes - 1 > a.last[n])
      s = keep_lanes(s, a.first[n] - i, a.last[n] - i, kHidden);
    store(scores + i, s);
    peaks = max(peaks, s);
  }
  return maximum(peaks);
}

// Turns scores into probabilities relative to the new peak. Returns the factor for the earlier
// sums.
inline float page_probabilities(SoftmaxState& state, float page_peak, float* scores) {
  const float peak = state.peak > page_peak ? state.peak : page_peak;  // lets a NaN through
  if (peak == kHidden) {                                               // nothing visible so far
    memset(scores, 0, kPage * sizeof(float));
    return 1.f;
  }
  F32x16 total{};
  for (int i = 0; i < kPage; i += kLanes) {
    const F32x16 p = exp(load(scores + i) - peak);
    store(scores + i, p);
    total += p;
  }
  const float rescale = state.peak == peak ? 1.f : std::exp(state.peak - peak);
  state = {peak, state.total * rescale + sum(total)};
  return rescale;
}

}  // namespace
