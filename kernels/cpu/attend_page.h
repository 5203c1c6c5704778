// Up to eight queries against one page of keys and values: scores, softmax, sums. Compiled with different target flags.
#pragma once
#include <cmath>

#include "simd.h"
#include "vector_ops.h"

namespace {
using namespace sharpi;

// The positions of a page that any of its queries sees. Nothing else is touched: an old value there may be infinite.
struct Visible {
  int begin, end;
};
inline Visible visible(const PageAttention& a) {
  Visible v{kPage, 0};
  for (int n = 0; n < a.num_queries; n++) {
    v.begin = a.first[n] < v.begin ? a.first[n] : v.begin;
    v.end = a.last[n] >= v.end ? a.last[n] + 1 : v.end;
  }
  return {v.begin < 0 ? 0 : v.begin, v.end > kPage ? kPage : v.end};
}

constexpr int kLineHalves = 32;  // fp16 in a cache line

// Scores of N queries with the page's keys, two panels at a time: each sum runs over the dimensions in order. Meanwhile
// the values are fetched, line after line: later they are read in columns, which no processor foresees.
template <int N>
void page_scores(const PageAttention& a, Visible range, float scores[][kPage]) {
  constexpr int kPair = 2 * kPanel;
  const uint16_t* line = (a.values ? a.values : a.keys) + (size_t)(range.begin / kPair * kPair) * a.value_dim;
  for (int panel = range.begin / kPair * 2; panel * kPanel < range.end; panel += 2) {
    const uint16_t* low = a.keys + (size_t)panel * a.key_dim * kPanel;
    const uint16_t* high = low + (size_t)a.key_dim * kPanel;
    F32x16 s[N][2] = {};
    for (int d = 0; d < a.key_dim; d++) {
      const F32x16 k0 = load_half(low + d * kPanel), k1 = load_half(high + d * kPanel);
      __builtin_prefetch(line, 0, 2);
      line += kLineHalves;
#pragma GCC unroll 8
      for (int n = 0; n < N; n++) {
        const F32x16 q = broadcast(a.queries[n][d]);
        s[n][0] += q * k0;
        s[n][1] += q * k1;
      }
    }
    for (int n = 0; n < N; n++) {
      store(scores[n] + panel * kPanel, s[n][0]);
      store(scores[n] + (panel + 1) * kPanel, s[n][1]);
    }
  }
}

// Where column `d` of the values finds lines of the next page's keys to fetch, one a position; or its own page's.
inline const uint16_t* lines_ahead(const PageAttention& a, int d) {
  const int done = d / kLanes * kPage * kLineHalves;
  return a.next && done < kPage * a.key_dim ? a.next + done : a.values;
}

// sums = sums * rescale + probabilities . values, over the positions in order.
template <int N>
void page_values(const PageAttention& a, Visible range, const float probabilities[][kPage], const float* rescale) {
  for (int d = 0; d < a.value_dim; d += kLanes) {
    F32x16 s[N];
    for (int n = 0; n < N; n++) s[n] = load(a.sums[n] + d) * rescale[n];
    const uint16_t* ahead = lines_ahead(a, d);
    for (int p = range.begin; p < range.end; p++) {
      const F32x16 v = load_half(a.values + (size_t)p * a.value_dim + d);
      __builtin_prefetch(ahead + p * kLineHalves, 0, 2);
#pragma GCC unroll 8
      for (int n = 0; n < N; n++) s[n] += probabilities[n][p] * v;
    }
    for (int n = 0; n < N; n++) store(a.sums[n] + d, s[n]);
  }
}

// Sixteen rows become sixteen columns: four rounds that swap halves, quarters, pairs and neighbours.
inline void transpose(F32x16 rows[kLanes]) {
  constexpr I32x16 kLane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#pragma GCC unroll 4
  for (int step = kLanes / 2; step; step /= 2) {
    const I32x16 low = (kLane & step) ? kLane - step + kLanes : kLane;
    const I32x16 high = (kLane & step) ? kLane + kLanes : kLane + step;
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; i++) {
      if (i & step) continue;
      const F32x16 a = rows[i], b = rows[i + step];
      rows[i] = __builtin_shuffle(a, b, low);
      rows[i + step] = __builtin_shuffle(a, b, high);
    }
  }
}

// As page_values, where the values are the first of each key's: a panel's are turned, sixteen columns at a time.
template <int N>
void page_values_in_keys(const PageAttention& a, Visible range, const float probabilities[][kPage],
                         const float* rescale) {
  for (int d = 0; d < a.value_dim; d += kLanes) {
    F32x16 s[N], tile[kLanes];
    for (int n = 0; n < N; n++) s[n] = load(a.sums[n] + d) * rescale[n];
    const int rows = a.key_dim - d < kLanes ? a.key_dim - d : kLanes;
    for (int panel = range.begin / kPanel; panel * kPanel < range.end; panel++) {
      const uint16_t* keys = a.keys + ((size_t)panel * a.key_dim + d) * kPanel;
      for (int r = 0; r < kLanes; r++) tile[r] = r < rows ? load_half(keys + r * kPanel) : F32x16{};
      transpose(tile);
      for (int i = 0; i < kPanel; i++) {
        const int p = panel * kPanel + i;
        if (p < range.begin || p >= range.end) continue;
#pragma GCC unroll 8
        for (int n = 0; n < N; n++) s[n] += probabilities[n][p] * tile[i];
      }
    }
    for (int n = 0; n < N; n++) store(a.sums[n] + d, s[n]);
  }
}

// Scores become probabilities relative to the new peak; returns what the earlier sums are multiplied with.
inline float page_softmax(const PageAttention& a, int n, float* scores) {
  constexpr float kHidden = -INFINITY;
  F32x16 peaks = broadcast(kHidden);
  const F32x16 cap = broadcast(a.soft_cap);
  for (int i = 0; i < kPage; i += kLanes) {
    F32x16 s = load(scores + i);
    if (a.soft_cap > 0) s = cap * tanh(s / cap);
    if (i < a.first[n] || i + kLanes - 1 > a.last[n]) {
      I32x16 at;
      for (int l = 0; l < kLanes; l++) at[l] = i + l;
      s = ((at < a.first[n]) | (at > a.last[n])) ? broadcast(kHidden) : s;
    }
    store(scores + i, s);
    peaks = max(peaks, s);
  }
  SoftmaxState& state = a.states[n];
  const float peak = std::fmax(state.peak, maximum(peaks));
  if (peak == kHidden) {  // nothing visible so far
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

// Scores and sums as they are, in float32.
struct FullAttention {
  template <int N>
  static void scores(const PageAttention& a, Visible range, float scores[][kPage]) {
    page_scores<N>(a, range, scores);
  }
  template <int N>
  static void values(const PageAttention& a, Visible range, const float probabilities[][kPage], const float* rescale) {
    (a.values ? page_values<N> : page_values_in_keys<N>)(a, range, probabilities, rescale);
  }
};

template <class How, int N>
void attend(const PageAttention& a) {
  alignas(64) float scores[N][kPage] = {};
  float rescale[N];
  const Visible range = visible(a);
  How::template scores<N>(a, range, scores);
  for (int n = 0; n < N; n++) rescale[n] = page_softmax(a, n, scores[n]);
  How::template values<N>(a, range, scores, rescale);
}

template <class How>
void attend_as(const PageAttention& a) {
  constexpr void (*sizes[])(const PageAttention&) = {attend<How, 1>, attend<How, 2>, attend<How, 3>, attend<How, 4>,
                                                     attend<How, 5>, attend<How, 6>, attend<How, 7>, attend<How, 8>};
  sizes[a.num_queries - 1](a);
}

}  // namespace
