// Computes the scores of rounded queries with a page's packed keys: integer products.
#pragma once
#include "attend_page.h"
#include "int_products.h"
#include "unpack_page.h"

namespace {

// Queries with one scale each: [dim / 4][kQueries] words of four numbers; then scales [kQueries];
// then the sums of each block's numbers [dim / 32][kQueries], which minimums multiply.
struct RoundedQueries {
  uint32_t* quads;
  float* scales;
  int32_t* sums;

  RoundedQueries(const uint8_t* at, int dim)
      : quads((uint32_t*)at),
        scales((float*)(quads + dim / kQuad * kQueries)),
        sums((int32_t*)(scales + kQueries)) {}
  RoundedQueries from(int first) const {
    RoundedQueries q = *this;
    q.quads += first, q.scales += first, q.sums += first;
    return q;
  }
};

// Returns the largest magnitude of a row, or NaN if there is one.
inline float row_peak(const float* x, int dim) {
  float peak = 0;
  for (int d = 0; d < dim; d += kKvBlock)
    if (const float own = peak_of(x + d); !(own <= peak)) peak = own;
  return peak;
}

// Rounds queries to int8 with one scale each. A NaN or an infinity shows in the scale.
void prepare_rounded(const float* const* queries, int count, float scale, int dim, uint8_t* out) {
  constexpr float kMagic = 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer
  const RoundedQueries to(out, dim);
  for (int n = 0; n < count; n++) {
    const float peak = row_peak(queries[n], dim), inverse = peak < kTiny ? 0.f : 127.f / peak;
    to.scales[n] = peak < kTiny ? 0.f : peak / 127.f * scale;
    for (int b = 0; b < dim / kKvBlock; b++) {
      const float* x = queries[n] + b * kKvBlock;
      int8_t q[kKvBlock];
      int sum = 0;
      for (int i = 0; i < kKvBlock; i++) q[i] = int8_t(float_bits(x[i] * inverse + kMagic) & 255);
      for (int i = 0; i < kKvBlock; i++) sum += q[i];
      to.sums[b * kQueries + n] = sum;
      for (int i = 0; i < kKvBlock / kQuad; i++)
        memcpy(to.quads + (b * kKvBlock / kQuad + i) * kQueries + n, q + i * kQuad, kQuad);
    }
  }
}

inline Own scales_at(const uint16_t* p) {
#if defined(__AVX512F__)
  return (Own)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
#else
  return (Own)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p));
#endif
}

// Memory that is prefetched while a page is computed: a little with each vector, because many
// prefetches at once wait for each other.
struct Ahead {
  const uint8_t* at;
  size_t step;  // bytes; 0: there is nothing to prefetch

  Ahead(const uint8_t* from, size_t bytes, int num_steps)
      : at(from), step(from ? bytes / num_steps + 1 : 0) {}
  [[gnu::always_inline]] void fetch(int index) const {
    __builtin_prefetch(at + index * step, 0, 2);
  }
};

// The keys of a vector of positions.
struct KeyPanel {
  const uint8_t* numbers;
  const uint16_t* scales;
  int block_apart, minimum_apart, zero, num_blocks;
};

// Computes the scores of N queries.
template <int N>
[[gnu::always_inline]] inline void panel_products(KeyPanel keys, RoundedQueries q, Ahead ahead,
                                                  Own s[N]) {
  constexpr int kQuads = kKvBlock / kQuad;
  const Wide zero = all_words(uint32_t(keys.zero) * 0x01010101u);
  for (int n = 0; n < N; n++) s[n] = Own{};
  for (int b = 0; b < keys.num_blocks; b++) {
    Wide products[N];
    for (int n = 0; n < N; n++)
      products[n] = all_words(KeyBytes::kHasZero ? uint32_t(-keys.zero * q.sums[n]) : 0u);
#pragma GCC unroll 8
    for (int i = 0; i < kQuads; i++) {
      ahead.fetch(i);
      const KeyBytes key(keys.numbers + i * kVectorCodes, zero);
#pragma GCC unroll 8
      for (int n = 0; n < N; n++) products[n] = key.add_to(products[n], q.quads[i * kQueries + n]);
    }
    const Own scale = scales_at(keys.scales);
    for (int n = 0; n < N; n++) s[n] += to_floats(products[n]) * scale;
    if (keys.minimum_apart) {
      const Own minimum = scales_at(keys.scales + keys.minimum_apart);
      for (int n = 0; n < N; n++) s[n] += minimum * float(q.sums[n]);
    }
    keys.numbers += kQuads * kVectorCodes, keys.scales += keys.block_apart;
    q.quads += kQuads * kQueries, q.sums += kQueries, ahead.at += kQuads * ahead.step;
  }
  for (int n = 0; n < N; n++) s[n] *= q.scales[n];
}

// Does so with the panels that have visible positions. Meanwhile the first half
// of the next page's keys is prefetched.
template <int N>
void rounded_panels(const PageAttention& a, int from, Visible range, float scores[][kPage]) {
  const PackedKeys& keys = *a.packed_keys;
  const RoundedQueries queries = RoundedQueries(a.queries, a.key_dim).from(from);
  const int blocks = a.key_dim / kKvBlock;
  const int steps = a.key_dim / kQuad;
  Ahead ahead(from ? nullptr : a.next, a.key_bytes / 2, kPage / kOwnLanes * steps);
  for (int at = range.begin / kOwnLanes * kOwnLanes; at < range.end; at += kOwnLanes) {
    const int panel = at / kPanel, part = at % kPanel;
    const KeyPanel view{panel_of(keys, panel) + part * kQuad,
                        scale_of(keys, panel, 0) + part,
                        keys.block_apart,
                        keys.minimum_apart,
                        keys.zero,
                        blocks};
    Own s[N];
    panel_products<N>(view, queries, ahead, s);
    ahead.at += steps * ahead.step;
    for (int n = 0; n < N; n++) store_own(scores[from + n] + at, s[n]);
  }
}

// Calls run(from, count), with a constant count of at most kQueriesAtOnce, until all are done.
template <class Run>
inline void in_parts(int all, Run run) {
  [&]<int... kLess>(std::integer_sequence<int, kLess...>) {
    for (int from = 0; from < all; from += kQueriesAtOnce) {
      const int count = std::min(kQueriesAtOnce, all - from);
      (void)((count == kLess + 1 && (run(from, std::integral_constant<int, kLess + 1>{}), true)) ||
             ...);
    }
  }(std::make_integer_sequence<int, kQueriesAtOnce>{});
}

void rounded_scores(const PageAttention& a, Visible range, float scores[][kPage]) {
  in_parts(a.num_queries, [&](int from, auto n) { rounded_panels<n>(a, from, range, scores); });
}

}  // namespace
