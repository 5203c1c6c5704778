// The same as attend_page.h for packed keys and values with AVX-512 VNNI: integer products.
//
// Queries are rounded to int8. The weight of a value, its probability times its block's scale, is
// rounded to 15 bits relative to the largest in the page.
#pragma once
#include "attend_page_rounded_keys.h"
#include "attend_page_rounded_values.h"

namespace {

template <class Type>
void rounded_scores(const PageAttention& a, Visible range, float scores[][kPage]) {
  const PackedKeys keys = view_keys<Type>(a, range);
  with_count(a.num_queries, [&](auto n) { rounded_panels<n>(a, keys, range, scores); });
}

template <class Type>
void rounded_values(const PageAttention& a, Visible range, const float probabilities[][kPage],
                    const float* rescale) {
  const PackedValues values = view_values<Type>(a, range);
  with_count(a.num_queries,
             [&](auto n) { rounded_columns<n>(a, values, range, probabilities, rescale); });
}

inline bool has_values(const KvLayer& c) { return !c.values_in_keys; }

}  // namespace
