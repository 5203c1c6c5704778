// The same as attend_page.h for a page of q8_0 with AVX-512 VNNI: integer products, directly on the
// blocks.
//
// Queries are rounded to int8. The weight of a value, its probability times its block's scale, is
// rounded to 15 bits relative to the largest in the page.
#pragma once
#include "attend_page_q8_keys.h"
#include "attend_page_q8_values.h"

namespace {

// Returns true if all queries see the same positions of the page.
inline bool is_alike(const PageAttention& a) {
  const Visible all = visible(a, 0);
  for (int n = 1; n < a.num_queries; n++)
    if (const Visible v = visible(a, n); v.begin != all.begin || v.end != all.end) return false;
  return true;
}

struct WholeNumberAttention {
  template <int N>
  static void scores(const PageAttention& a, Visible range, float scores[][kPage]) {
    const RoundedQueries queries(a.queries, a.key_dim, N);
    for (int p = range.begin / kPanel; p * kPanel < range.end; p++) {
      const size_t at = p * panel_bytes_q8(a.key_dim);
      panel_products<N>(a.keys + at, queries, a.key_dim, a.values + at, p * kPanel, scores);
    }
  }

  template <int N>
  static void values(const PageAttention& a, Visible range, const float probabilities[][kPage],
                     const float* rescale) {
    const PageShares<N> shares(probabilities);
    const bool alike =
        is_alike(a);  // otherwise a query's rounding must depend on its own positions alone
    for (int d = 0; d < a.value_dim; d += kKvBlock) {
      const size_t at = size_t(d / kKvBlock) * kColumnBytes;
      alignas(64) uint32_t pairs[N][kPage / 2];
      float unit[N], *sums[N];
      ColumnScales scales(a.values + at, visible(a, 0));
      for (int n = 0; n < N; n++) {
        if (!alike) scales = ColumnScales(a.values + at, visible(a, n));
        shares.pair_with(scales, n, pairs[n]);
        unit[n] = shares.unit[n] * scales.largest, sums[n] = a.sums[n] + d;
      }
      column_products<N>(a.values + at, range, pairs, unit, rescale,
                         (a.next ? a.next : a.keys) + at, sums);
    }
  }
};

inline bool takes_whole_numbers(const KvLayer& c) { return !c.values_in_keys; }

}  // namespace
