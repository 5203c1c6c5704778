// Sums a page's packed values with integer weights: the weight of a value, its probability times
// its block's scale, is rounded to 7 bits, or to 15, relative to the largest in the page.
#pragma once
#include "rounded_keys.h"

namespace {

constexpr float kNothing = 1e-30f;  // a page adds nothing if its largest probability is below this
constexpr int kColumnRows = kPage / kQuad;  // quads of positions of a column
// The largest weights. As a factor of a word in units of 2^-15, that of bytes is 16 times as large,
// and kBytesOfWords turns the other factor to units of 2^-11.
constexpr float kBytesWhole = 127.f, kByteFactor = 127.f * 16, kWordsWhole = 32767.f;
constexpr uint32_t kBytesOfWords = 0x08000800u;

// Rounds 16 numbers times `factor` to integers in the lowest bits. Adding kMagic, 1.5 * 2^23,
// rounds to an integer.
[[gnu::always_inline]] inline Wide rounded(const float* numbers, Own factor) {
  constexpr float kMagic = 12582912.f;
  const Own sum = load_own(numbers) * factor + kMagic;
  return (Wide)sum;
}

// Rounds a page's numbers times `factor` to words.
[[gnu::always_inline]] inline void round_page(const float* numbers, float factor, PageWords& to) {
  const Own all = factor - Own{};
  for (int i = 0; i < kColumnRows; i += kOwnLanes)
    for (int first = 0; first < 2; first++) {
      const auto part = [&](int p) { return rounded(numbers + p * kQuadApart + i, all); };
      const Wide pairs = words_of(part(first), part(first + 2));
      memcpy(to.pairs[first] + i, &pairs, sizeof pairs);
    }
}

// Computes the scales relative to the largest one of a range; those of others become 0. Magnitudes
// sort as integers, a NaN above all.
inline void set_column_scales(const uint16_t* scales, Visible range, ColumnScales& to) {
  alignas(64) float all[kPage];
  OwnInts largest{};
  for (int i = 0; i < kPage; i += kLanes) {
    F32x16 x = load_half(scales + i);
    if (i < range.begin || i + kLanes > range.end)
      x = keep_lanes(x, range.begin - i, range.end - 1 - i, 0.f);
    store(all + i, x);
    for (const Own& part : x.part) {
      OwnInts bits;
      memcpy(&bits, &part, sizeof bits);
      bits &= 0x7fffffff;
      largest = bits > largest ? bits : largest;
    }
  }
  const int32_t most = largest_lane((Wide)largest);
  memcpy(&to.largest, &most, sizeof most);
  round_page(all, to.largest > 0 ? kWordsWhole / to.largest : 0.f, to.relative);
}

// Does the same as unpack_values, and computes the scales of columns.
template <class Type>
void unpack_scaled(const KvPage& page, Visible range, uint8_t* memory, PackedValues& view) {
  unpack_values<Type, kStaysPacked<Type>>(page, range, memory, view);
  ColumnScales* columns = (ColumnScales*)(memory + size_t(kPage) * page.value_dim);
  for (int c = 0; c * kKvBlock < page.value_dim; c++)
    if (c == 0 || view.column_apart) set_column_scales(scale_of(view, c), range, columns[c]);
  view.columns = columns, view.range = range;
}

// The weights of four positions side by side, as the values lie: bytes; or words.
union Weights {
  alignas(64) uint32_t quads[kColumnRows];
  PageWords words;
};

// Computes weights from a query's shares and a column's scales, and returns their sums by lane.
[[gnu::always_inline]] inline Wide weigh_bytes(const PageWords& shares, const PageWords& scales,
                                               Weights& to) {
  Wide sums{};
  for (int i = 0; i < kColumnRows; i += kOwnLanes) {
    const auto pairs = [&](int first) {
      const Wide scale = scale_words(load_wide(scales.pairs[first] + i), all_words(kBytesOfWords));
      return scale_words(load_wide(shares.pairs[first] + i), scale);
    };
    const Wide quads = bytes_of(pairs(0), pairs(1));
    memcpy(to.quads + i, &quads, sizeof quads);
    sums = add_signed(sums, quads);
  }
  return sums;
}
[[gnu::always_inline]] inline Wide weigh_words(const PageWords& shares, const PageWords& scales,
                                               Weights& to) {
  Wide sums{};
  for (int i = 0; i < kColumnRows; i += kOwnLanes)
    for (int first = 0; first < 2; first++) {
      const Wide pairs =
          scale_words(load_wide(shares.pairs[first] + i), load_wide(scales.pairs[first] + i));
      memcpy(to.words.pairs[first] + i, &pairs, sizeof pairs);
      sums = add_words(sums, pairs, all_words(0x00010001u));
    }
  return sums;
}

// A column's weights for all queries of a page.
struct ColumnWeights {
  Weights weights[kQueries];
  int32_t starts[kQueries];  // -zero times the sum of the weights
  float unit[kQueries], added[kQueries];
};

// A page's queries: first those whose weights are bytes, then the others. Bytes are enough where
// the page adds little: their error is less than a hundredth of the page's largest probability.
struct Order {
  static constexpr float kMuch = 1 / 64.f;
  int queries[kQueries], num_bytes = 0, num_all = 0;
  bool sees_all[kQueries];  // the query sees what the scales of the page were computed for

  explicit Order(const PageAttention& a) {
    bool is_word[kQueries];
    for (int n = 0; n < a.num_queries; n++) {
      const Visible own = visible(a, n), all = a.packed_values->range;
      sees_all[n] = own.begin == all.begin && own.end == all.end;
      is_word[n] = !(a.states[n]->largest <= a.states[n]->total * kMuch);
    }
    for (const bool words : {false, true}) {
      for (int n = 0; n < a.num_queries; n++)
        if (is_word[n] == words) queries[num_all++] = n;
      if (!words) num_bytes = num_all;
    }
  }
};

// Two vectors of a column's values.
struct ColumnPart {
  const uint8_t* numbers;
  int zero;
};

// Computes weights . values of N queries.
template <int N, Bytes kKind, int kNibbles>
struct ByteColumn {
  static constexpr int kBytes = kColumnCodes / (kNibbles ? 2 : 1);
  static constexpr int kApart = sizeof(Weights) / sizeof(uint32_t);
  [[gnu::always_inline]] static void products(ColumnPart part, const Weights* weights,
                                              const int32_t* starts, Ahead& ahead,
                                              Wide out[N][kParts]) {
#pragma GCC unroll 8
    for (int n = 0; n < N; n++)
      out[n][0] = out[n][1] = all_words(kHasZero<kKind> ? uint32_t(starts[n]) : 0u);
    add_rows<N, kParts, kKind, kColumnRows, kApart, 1, kNibbles>(
        {part.numbers, sizeof(Wide), kKvBlock * kQuad, weights->quads},
        all_words(uint32_t(part.zero) * 0x01010101u), ahead, out);
  }
};
template <int N, int kNibbles>
struct WordColumn {
  static constexpr int kBytes = kColumnCodes / (kNibbles ? 2 : 1), kRowApart = kKvBlock * kQuad;

  // Adds row `at` of the column, number `row` from `rows` on.
  [[gnu::always_inline]] static void add_row(const uint8_t* rows, int row, int at,
                                             const Weights* weights, Wide out[N][kParts]) {
#pragma GCC unroll 2
    for (int v = 0; v < kParts; v++) {
      const Wide x = load_row<kNibbles>(rows + v * sizeof(Wide), row, kRowApart);
      const Wide low = low_bytes(x), high = high_bytes(x);
#pragma GCC unroll 8
      for (int n = 0; n < N; n++) {
        out[n][v] = add_words(out[n][v], low, all_words(weights[n].words.pairs[0][at]));
        out[n][v] = add_words(out[n][v], high, all_words(weights[n].words.pairs[1][at]));
      }
    }
  }
  [[gnu::always_inline]] static void products(ColumnPart part, const Weights* weights,
                                              const int32_t* starts, Ahead& ahead,
                                              Wide out[N][kParts]) {
    constexpr int kStep = kNibbles ? kNibbles : 1, kStored = kNibbles ? kNibbles / 2 : 1;
    for (int n = 0; n < N; n++) out[n][0] = out[n][1] = all_words(uint32_t(starts[n]));
    for (int at = 0; at < kColumnRows; at += kStep, part.numbers += kStored * kRowApart) {
#pragma GCC unroll 4
      for (int i = 0; i < kStep; i++) {
        ahead.fetch();
        add_row(part.numbers, i, at + i, weights, out);
      }
    }
  }
};

// Computes sums = sums * rescale + unit * weights . values + added of N queries from `from`.
template <int N, class Column>
void column_of_queries(const PageAttention& a, const ColumnWeights& w, const int* queries, int from,
                       const float* rescale, int column, Ahead& ahead) {
  const PackedValues& values = *a.packed_values;
  const uint8_t* numbers = values.numbers + size_t(column) * Column::kBytes;
  for (int d = 0; d < kKvBlock; d += kParts * kOwnLanes) {
    Wide products[N][kParts];
    Column::products({numbers + d * kQuad, values.zero}, w.weights + from, w.starts + from, ahead,
                     products);
#pragma GCC unroll 8
    for (int n = 0; n < N; n++)
#pragma GCC unroll 2
      for (int i = 0; i < kParts; i++) {
        float* sum = a.sums[queries[from + n]] + column * kKvBlock + d + i * kOwnLanes;
        const Own before = load_own(sum) * rescale[queries[from + n]] + w.added[from + n];
        store_own(sum, to_floats(products[n][i]) * w.unit[from + n] + before);
      }
  }
}

// Probabilities of ordered queries as parts of the largest weight, and what a weight of 1 is worth.
struct PageShares {
  PageWords shares[kQueries];
  float unit[kQueries];

  PageShares(const PageAttention& a, const Order& order, const float probabilities[][kPage]) {
    for (int n = 0; n < order.num_all; n++) {
      const bool is_byte = n < order.num_bytes;
      const float most = a.states[order.queries[n]]->largest;
      const float factor = is_byte ? kByteFactor : kWordsWhole;
      round_page(probabilities[order.queries[n]], most > kNothing ? factor / most : 0.f, shares[n]);
      unit[n] = most > kNothing ? most / (is_byte ? kBytesWhole : kWordsWhole) : 0.f;
    }
  }
};

// Sets starts[n] to -zero times the sum of the lanes of sums[n].
inline void set_starts(Own sums[kQueries], int count, int zero, int32_t* starts) {
  float totals[kQueries];
  fold_queries(sums, count, [](Own x, Own y) { return (Own)((OwnInts)x + (OwnInts)y); }, totals);
  for (int n = 0; n < count; n++) starts[n] = -zero * float_bits(totals[n]);
}

[[gnu::always_inline]] inline F32x16 visible_minimums(const uint16_t* minimums, int at,
                                                      Visible range) {
  return keep_lanes(load_half(minimums + at), range.begin - at, range.end - 1 - at, 0.f);
}

// Sets added[n] to the sum of the minimums of visible positions, each times the probability.
inline void add_minimums(const PageAttention& a, const Order& order, const uint16_t* minimums,
                         const float probabilities[][kPage], float* added) {
  F32x16 all[kPage / kLanes];
  for (int i = 0; i < kPage; i += kLanes)
    all[i / kLanes] = visible_minimums(minimums, i, a.packed_values->range);
  Own sums[kQueries];
  for (int n = 0; n < order.num_all; n++) {
    const int query = order.queries[n];
    F32x16 total{};
#pragma GCC unroll 4
    for (int i = 0; i < kPage; i += kLanes) {
      const F32x16 own = order.sees_all[query] ? all[i / kLanes]
                                               : visible_minimums(minimums, i, visible(a, query));
      total += own * load(probabilities[query] + i);
    }
    sums[n] = fold_parts(total, kAdd);
  }
  fold_queries(sums, order.num_all, kAdd, added);
}

// Computes a column's weights. A query's rounding depends on its own positions alone: where it does
// not see what the scales of the page were computed for, it has its own.
inline void weigh_column(const PageAttention& a, const Order& order, const PageShares& shares,
                         int column, const float probabilities[][kPage], ColumnWeights& to) {
  const PackedValues& values = *a.packed_values;
  const ColumnScales& all = values.columns[values.column_apart ? column : 0];
  const uint16_t* minimums = scale_of(values, column) + values.minimum_apart;
  Own sums[kQueries];
  for (int n = 0; n < order.num_all; n++) {
    const int query = order.queries[n];
    ColumnScales own;
    const ColumnScales* scales = &all;
    if (!order.sees_all[query]) [[unlikely]] {
      set_column_scales(scale_of(values, column), visible(a, query), own);
      scales = &own;
    }
    sums[n] =
        (Own)(n < order.num_bytes ? weigh_bytes(shares.shares[n], scales->relative, to.weights[n])
                                  : weigh_words(shares.shares[n], scales->relative, to.weights[n]));
    to.unit[n] = shares.unit[n] * scales->largest;
  }
  if (values.minimum_apart) add_minimums(a, order, minimums, probabilities, to.added);
  set_starts(sums, order.num_all, values.zero, to.starts);
}

constexpr int kRowsOfGroup = kColumnRows / kColumnGroups;
constexpr int kColumnsAtOnce = 4;  // whose weights are computed before their products

// Adds a column's values.
template <Bytes kBytes, int kNibbles>
inline void add_column(const PageAttention& a, const Order& order, const ColumnWeights& weights,
                       int column, const float* rescale, Ahead& ahead, Ahead& none) {
  in_parts(order.num_bytes, [&](int from, auto n) {
    column_of_queries<n, ByteColumn<n, kBytes, kNibbles>>(a, weights, order.queries, from, rescale,
                                                          column, from ? none : ahead);
  });
  in_parts(order.num_all - order.num_bytes, [&](int from, auto n) {
    column_of_queries<n, WordColumn<n, kNibbles>>(a, weights, order.queries, order.num_bytes + from,
                                                  rescale, column,
                                                  from + order.num_bytes ? none : ahead);
  });
}

// Adds a page's values for all columns. Meanwhile the next page's are prefetched.
// kPacked: as with rounded_scores.
template <Bytes kBytes, bool kPacked>
void rounded_values(const PageAttention& a, Visible, const float probabilities[][kPage],
                    const float* rescale) {
  const Order order(a);
  const PageShares shares(a, order, probabilities);
  const int columns = a.value_dim / kKvBlock;
  constexpr int kSteps = kColumnRows * kKvBlock / (kParts * kOwnLanes);  // of a column
  Ahead none(a.queries), ahead = none;
  if (a.next) ahead = Ahead(a.next + a.key_bytes, a.value_bytes, columns * kSteps);
  ColumnWeights weights[kColumnsAtOnce];
  for (ColumnWeights& w : weights) std::fill_n(w.added, kQueries, 0.f);
  for (int c = 0; c < columns; c += kColumnsAtOnce) {
    const int count = std::min(kColumnsAtOnce, columns - c);
    for (int i = 0; i < count; i++)
      weigh_column(a, order, shares, c + i, probabilities, weights[i]);
    for (int i = 0; i < count; i++)
      add_column<kBytes, kPacked ? kRowsOfGroup : kBytesOnly>(a, order, weights[i], c + i, rescale,
                                                              ahead, none);
  }
}

}  // namespace
