// The body of every vector_ops_*.cpp: one source, compiled with different target flags.
#pragma once
#include <cmath>

#include "simd.h"
#include "vector_ops.h"

namespace {
using namespace sharpi;

// Calls body(i, count): full groups of 16 first, then what is left.
template <class Body>
inline void over_lanes(int n, Body body) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, kLanes);
  if (i < n) body(i, n - i);
}
inline F32x16 load_part(const float* p, int count) {
  if (count == kLanes) return load(p);
  float x[kLanes] = {};
  memcpy(x, p, count * sizeof(float));
  return load(x);
}
inline void store_part(float* p, F32x16 v, int count) {
  if (count == kLanes) return store(p, v);
  float x[kLanes];
  store(x, v);
  memcpy(p, x, count * sizeof(float));
}

void rms_norm(const float* x, const float* weight, float* out, int n, float epsilon) {
  F32x16 squares{};
  over_lanes(n, [&](int i, int count) {
    const F32x16 v = load_part(x + i, count);
    squares += v * v;
  });
  const float scale = 1.f / std::sqrt(sum(squares) / float(n) + epsilon);
  over_lanes(n, [&](int i, int count) {
    store_part(out + i, load_part(x + i, count) * scale * load_part(weight + i, count), count);
  });
}

inline F32x16 sigmoid(F32x16 x) { return 1.f / (1.f + exp(-x)); }
inline F32x16 tanh(F32x16 x) { return 2.f * sigmoid(2.f * x) - 1.f; }
inline F32x16 erf_gelu(F32x16 x) {
  float v[kLanes];
  store(v, x);
  for (float& e : v) e = 0.5f * e * (1.f + std::erf(e * 0.70710678f));
  return load(v);
}
constexpr float kSwigluLimit = 7.f;  // gpt-oss
// What an activation makes of the half that is not its own.
inline F32x16 linear_half(Activate kind, F32x16 x) {
  if (kind != Activate::ClampedSwiglu) return x;
  return max(min(x, broadcast(kSwigluLimit)), broadcast(-kSwigluLimit)) + 1.f;
}
inline F32x16 activate(Activate kind, F32x16 x) {
  switch (kind) {
    case Activate::Silu: return x * sigmoid(x);
    case Activate::GeluTanh: return x * sigmoid(1.5957691f * (x + 0.044715f * x * x * x));
    case Activate::Gelu: return erf_gelu(x);
    case Activate::Relu2: return max(x, F32x16{}) * max(x, F32x16{});
    case Activate::Sigmoid: return sigmoid(x);
    case Activate::Identity: return x;
    case Activate::ClampedSwiglu: {
      const F32x16 limited = min(x, broadcast(kSwigluLimit));
      return limited * sigmoid(1.702f * limited);
    }
  }
  return x;
}

void gated(Activate kind, const float* gate, const float* up, float* out, int n) {
  over_lanes(n, [&](int i, int count) {
    const F32x16 linear = linear_half(kind, load_part(up + i, count));
    store_part(out + i, activate(kind, load_part(gate + i, count)) * linear, count);
  });
}

void add_scaled(const float* a, const float* b, float scale, float* out, int n) {
  over_lanes(n, [&](int i, int count) {
    const F32x16 base = a ? load_part(a + i, count) : F32x16{};
    store_part(out + i, base + scale * load_part(b + i, count), count);
  });
}

void rope(float* head, const float* cosines, const float* sines, int half, bool interleaved) {
  if (interleaved) {
    for (int i = 0; i < half; i++) {
      const float a = head[2 * i], b = head[2 * i + 1];
      head[2 * i] = a * cosines[i] - b * sines[i];
      head[2 * i + 1] = b * cosines[i] + a * sines[i];
    }
    return;
  }
  over_lanes(half, [&](int i, int count) {
    const F32x16 a = load_part(head + i, count), b = load_part(head + half + i, count);
    const F32x16 c = load_part(cosines + i, count), s = load_part(sines + i, count);
    store_part(head + i, a * c - b * s, count);
    store_part(head + half + i, b * c + a * s, count);
  });
}

void to_half(const float* x, uint16_t* out, int n) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) store_half(out + i, load(x + i));
  for (; i < n; i++) out[i] = float_to_half(x[i]);
}

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
float page_softmax(const PageAttention& a, int n, float* scores) {
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

template <int N>
void attend(const PageAttention& a) {
  alignas(64) float scores[N][kPage] = {};
  float rescale[N];
  const Visible range = visible(a);
  page_scores<N>(a, range, scores);
  for (int n = 0; n < N; n++) rescale[n] = page_softmax(a, n, scores[n]);
  a.values ? page_values<N>(a, range, scores, rescale) : page_values_in_keys<N>(a, range, scores, rescale);
}

void attend_page(const PageAttention& a) {
  constexpr void (*sizes[])(const PageAttention&) = {attend<1>, attend<2>, attend<3>, attend<4>,
                                                     attend<5>, attend<6>, attend<7>, attend<8>};
  sizes[a.num_queries - 1](a);
}

void merge(SoftmaxState& into, float* sums, const SoftmaxState& part, const float* part_sums, int n) {
  if (part.total == 0) return;
  const float peak = std::fmax(into.peak, part.peak);
  const float old_scale = into.total == 0 ? 0.f : std::exp(into.peak - peak);
  const float new_scale = std::exp(part.peak - peak);
  over_lanes(n, [&](int i, int count) {
    store_part(sums + i, load_part(sums + i, count) * old_scale + load_part(part_sums + i, count) * new_scale, count);
  });
  into = {peak, into.total * old_scale + part.total * new_scale};
}

}  // namespace

#include "vector_recurrent.h"

namespace {

constexpr VectorOps make_vector_ops(const char* name) {
  return {name,        rms_norm, gated,    add_scaled, rope,      to_half,
          attend_page, merge,    convolve, delta_step, scan_step, unit_length};
}

}  // namespace
