// Attends up to eight queries to one page of keys and values: scores, softmax, weighted sums.
// Compiled with different target flags.
#pragma once
#include <type_traits>

#include "page_softmax.h"

namespace {
using namespace sharpi;

constexpr int kLine = 64, kLineHalves = kLine / 2;  // bytes of a cache line, and f16 values in it

inline void fetch_lines(const uint8_t* p, int bytes) {
  for (int i = 0; i < bytes; i += kLine) __builtin_prefetch(p + i, 0, 2);
}

inline const uint16_t* halves(const uint8_t* page) { return (const uint16_t*)page; }

// The numbers of queries and of key panels whose sums stay in registers at the same time.
#if defined(__AVX512F__)
constexpr int kQueriesAtOnce = 8, kPanelsAtOnce = 2;
#elif defined(__F16C__) || defined(__aarch64__)
constexpr int kQueriesAtOnce = 4, kPanelsAtOnce = 1;
#else
constexpr int kQueriesAtOnce = 8,
              kPanelsAtOnce = 1;  // spills, but converting fp16 more often costs more
#endif

// Calls body(from, count), with a constant count, until all N queries are done.
template <int N, class Body>
[[gnu::always_inline]] inline void over_queries(Body body) {
  static_assert(N <= 2 * kQueriesAtOnce);
  constexpr int kFirst = N <= kQueriesAtOnce ? N : (N + 1) / 2;
  body(0, std::integral_constant<int, kFirst>{});
  if constexpr (kFirst < N) body(kFirst, std::integral_constant<int, N - kFirst>{});
}

inline bool takes_all(const KvLayer&) { return true; }

// A page's keys in f16; `at`: dimension `d` of the 16 positions in a panel.
struct HalfKeys {
  const uint16_t* keys;
  int dim;
  explicit HalfKeys(const PageAttention& a) : keys(halves(a.keys)), dim(a.key_dim) {}
  F32x16 at(int panel, int d) const { return load_half(keys + ((size_t)panel * dim + d) * kPanel); }
};
// A page's values in f16; `at`: 16 columns of a position from `d` on.
struct HalfValues {
  const uint16_t* values;
  int dim;
  explicit HalfValues(const PageAttention& a) : values(halves(a.values)), dim(a.value_dim) {}
  F32x16 at(int position, int d) const { return load_half(values + (size_t)position * dim + d); }
};

// Copies the queries times `scale` to [dim][count].
inline void prepare_floats(const float* const* queries, int count, float scale, int dim,
                           uint8_t* out) {
  float* x = (float*)out;
  for (int n = 0; n < count; n++)
    for (int d = 0; d < dim; d++) x[d * count + n] = queries[n][d] * scale;
}

// Computes the scores of N of kAll queries from `from` with the keys of some panels: each sum runs
// over the dimensions in order. It also prefetches the memory after `line`.
template <int kAll, int N, class Keys>
[[gnu::always_inline]] inline void panel_scores(const PageAttention& a, const Keys& keys, int from,
                                                int panel, const uint16_t* line,
                                                float scores[][kPage]) {
  const float* queries = (const float*)a.queries + from;
  F32x16 s[N][kPanelsAtOnce] = {};
  for (int d = 0; d < a.key_dim; d++, line += kPanelsAtOnce * kPanel) {
    __builtin_prefetch(line, 0, 2);
    F32x16 k[kPanelsAtOnce];
    for (int i = 0; i < kPanelsAtOnce; i++) k[i] = keys.at(panel + i, d);
#pragma GCC unroll 8
    for (int n = 0; n < N; n++) {
      const F32x16 q = broadcast(queries[d * kAll + n]);
      for (int i = 0; i < kPanelsAtOnce; i++) s[n][i] += q * k[i];
    }
  }
  for (int n = 0; n < N; n++)
    for (int i = 0; i < kPanelsAtOnce; i++) store(scores[from + n] + (panel + i) * kPanel, s[n][i]);
}

// Computes the scores of N queries with the page's keys. It also prefetches the values, which are
// read in columns later: no hardware prefetcher predicts that.
template <int N, class Keys>
void page_scores(const PageAttention& a, const Keys& keys, Visible range, float scores[][kPage]) {
  constexpr int kStep = kPanelsAtOnce * kPanel;
  const uint16_t* fetched = halves(a.values ? a.values : a.keys);
  for (int at = range.begin / kStep * kStep; at < range.end; at += kStep)
    over_queries<N>([&](int from, auto count) {
      panel_scores<N, count>(a, keys, from, at / kPanel, fetched + (size_t)at * a.value_dim,
                             scores);
    });
}

// Returns the lines to prefetch while column `d` of the values is read, one per position: the next
// page's keys, or this page's values if there is none.
inline const uint16_t* lines_ahead(const PageAttention& a, int d) {
  const int done = d / kLanes * kPage * kLineHalves;
  return a.next && done < kPage * a.key_dim ? halves(a.next) + done : halves(a.values);
}

// Computes sums = sums * rescale + probabilities . values for N queries from `from` and 16 columns,
// over the positions in order.
template <int N, class Values>
[[gnu::always_inline]] inline void column_values(const PageAttention& a, const Values& values,
                                                 int from, int d, Visible range,
                                                 const float probabilities[][kPage],
                                                 const float* rescale, const uint16_t* ahead) {
  F32x16 s[N];
  for (int n = 0; n < N; n++) s[n] = load(a.sums[from + n] + d) * rescale[from + n];
  for (int p = range.begin; p < range.end; p++) {
    const F32x16 v = values.at(p, d);
    __builtin_prefetch(ahead + p * kLineHalves, 0, 2);
#pragma GCC unroll 8
    for (int n = 0; n < N; n++) s[n] += probabilities[from + n][p] * v;
  }
  for (int n = 0; n < N; n++) store(a.sums[from + n] + d, s[n]);
}
template <int N, class Values>
void page_values(const PageAttention& a, const Values& values, Visible range,
                 const float probabilities[][kPage], const float* rescale) {
  for (int d = 0; d < a.value_dim; d += kLanes)
    over_queries<N>([&](int from, auto count) {
      column_values<count>(a, values, from, d, range, probabilities, rescale, lines_ahead(a, d));
    });
}

// Does the same if values are the beginning of each key: a panel is transposed, sixteen columns at
// a time.
template <int N, class Keys>
void page_values_in_keys(const PageAttention& a, const Keys& keys, Visible range,
                         const float probabilities[][kPage], const float* rescale) {
  for (int d = 0; d < a.value_dim; d += kLanes) {
    F32x16 s[N], tile[kLanes];
    for (int n = 0; n < N; n++) s[n] = load(a.sums[n] + d) * rescale[n];
    const int rows = a.key_dim - d < kLanes ? a.key_dim - d : kLanes;
    for (int panel = range.begin / kPanel; panel * kPanel < range.end; panel++) {
      for (int r = 0; r < kLanes; r++) tile[r] = r < rows ? keys.at(panel, d + r) : F32x16{};
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

// Calls `run` with the number of queries as a constant.
template <class Run>
inline void with_count(int count, Run run) {
  [&]<int... kLess>(std::integer_sequence<int, kLess...>) {
    (void)((count == kLess + 1 && (run(std::integral_constant<int, kLess + 1>{}), true)) || ...);
  }(std::make_integer_sequence<int, kQueries>{});
}

// Attention over f16 in float32, without rounding scores or probabilities.
void half_scores(const PageAttention& a, Visible range, float scores[][kPage]) {
  with_count(a.num_queries, [&](auto n) { page_scores<n>(a, HalfKeys(a), range, scores); });
}
void half_values(const PageAttention& a, Visible range, const float probabilities[][kPage],
                 const float* rescale) {
  with_count(a.num_queries, [&](auto n) {
    if (a.values) page_values<n>(a, HalfValues(a), range, probabilities, rescale);
    else page_values_in_keys<n>(a, HalfKeys(a), range, probabilities, rescale);
  });
}

void attend_page(const PageAttention& a, const KeyOps& keys, const ValueOps& values) {
  alignas(64) float scores[kQueries][kPage];
  float rescale[kQueries];
  const Visible range = visible(a);
  if (range.begin > 0 || range.end < kPage) memset(scores, 0, sizeof scores);
  keys.scores(a, range, scores);
  page_probabilities(a, scores, rescale);
  values.add(a, range, scores, rescale);
}

}  // namespace
