// As attend_page.h, for a page of q8_0 with AVX-512 VNNI: products of whole numbers, straight on
// the blocks.
//
// Queries are rounded to int8. What a value is multiplied with, its probability and its block's
// scale, is rounded to 15 bits of the largest of a page.
#pragma once
#include "attend_page_q8_keys.h"
#include "attend_page_q8_values.h"

namespace {

// Whether all queries see the same of the page.
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
    const bool alike = is_alike(
        a);  // else a query's rounding is that of its own positions, whoever is met with it
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
