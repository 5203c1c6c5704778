// The same as attend_page.h for packed keys and values, in float32: numbers are converted as they
// are used.
#pragma once
#include "attend_page.h"
#include "unpack_page.h"

namespace {

// Extracts number `j` of each of 16 quads.
[[gnu::always_inline]] inline F32x16 numbers_of_quads(const uint8_t* quads, int j, int zero) {
  return each_part([=](int i) {
    OwnInts words;
    memcpy(&words, quads + i * sizeof words, sizeof words);
    return __builtin_convertvector((words >> 8 * j & 255) - zero, Own);
  });
}

// Views with the accessors of HalfKeys and HalfValues.
template <bool kHasMinimum>
struct FloatKeys {
  const PackedKeys& keys;
  [[gnu::always_inline]] F32x16 at(int panel, int d) const {
    const uint8_t* quads = panel_of(keys, panel) + d / kQuad * kVectorCodes;
    const uint16_t* scale = scale_of(keys, panel, d / kKvBlock);
    const F32x16 scaled = numbers_of_quads(quads, d % kQuad, keys.zero) * load_half(scale);
    return kHasMinimum ? scaled + load_half(scale + keys.minimum_apart) : scaled;
  }
};
template <bool kHasMinimum>
struct FloatValues {
  const PackedValues& values;
  float scales[kPage], minimums[kPage];

  [[gnu::always_inline]] F32x16 at(int position, int d) const {
    const ValuePlace place(d % kKvBlock, position);
    const uint8_t* quads =
        values.numbers + size_t(d / kKvBlock) * kColumnCodes + place.vector * kVectorCodes;
    const F32x16 scaled =
        numbers_of_quads(quads, position / kQuadApart, values.zero) * scales[position];
    return kHasMinimum ? scaled + minimums[position] : scaled;
  }
  // Converts the scales of the column with dimension `d`.
  void begin_column(int d) {
    const uint16_t* from = scale_of(values, d / kKvBlock);
    for (int p = 0; p < kPage; p += kLanes) {
      store(scales + p, load_half(from + p));
      if (kHasMinimum) store(minimums + p, load_half(from + values.minimum_apart + p));
    }
  }
};

template <int N, bool kHasMinimum>
void packed_columns(const PageAttention& a, const PackedValues& view, Visible range,
                    const float probabilities[][kPage], const float* rescale) {
  FloatValues<kHasMinimum> values{view, {}, {}};
  for (int d = 0; d < a.value_dim; d += kLanes) {
    if (d % kKvBlock == 0) values.begin_column(d);
    over_queries<N>([&](int from, auto count) {
      column_values<count>(a, values, from, d, range, probabilities, rescale, lines_ahead(a, d));
    });
  }
}

template <class Type>
constexpr bool kTypeHasMinimum = format_of(Type::kType).has_minimum;

template <bool kHasMinimum>
void packed_scores(const PageAttention& a, Visible range, float scores[][kPage]) {
  const FloatKeys<kHasMinimum> keys{*a.packed_keys};
  with_count(a.num_queries, [&](auto n) { page_scores<n>(a, keys, range, scores); });
}

template <bool kHasMinimum>
void packed_values(const PageAttention& a, Visible range, const float probabilities[][kPage],
                   const float* rescale) {
  with_count(a.num_queries, [&](auto n) {
    if (a.values) {
      packed_columns<n, kHasMinimum>(a, *a.packed_values, range, probabilities, rescale);
    } else {
      const FloatKeys<kHasMinimum> keys{*a.packed_keys};
      page_values_in_keys<n>(a, keys, range, probabilities, rescale);
    }
  });
}

}  // namespace
