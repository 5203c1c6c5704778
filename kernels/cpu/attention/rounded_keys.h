// Computes the scores of rounded queries with a page's packed keys: integer products.
#pragma once
#include "attend_page.h"
#include "int_products.h"
#include "unpack_page.h"

namespace {

constexpr int kLargestByte = 127;

// Queries as bytes with one scale each: [dim / 4][kQueries] words of four bytes; then scales
// [kQueries]; then the sums of each block's bytes [dim / 32][kQueries], which minimums multiply;
// then those times -zero, from which the products of stored numbers start, [dim / 32][kQueries].
struct RoundedQueries {
  uint32_t* quads;
  float *scales, *sums;
  int32_t* starts;

  RoundedQueries(const uint8_t* at, int dim)
      : quads((uint32_t*)at),
        scales((float*)(quads + dim / kQuad * kQueries)),
        sums(scales + kQueries),
        starts((int32_t*)(sums + dim / kKvBlock * kQueries)) {}
  RoundedQueries from(int first) const {
    RoundedQueries q = *this;
    q.quads += first, q.scales += first, q.sums += first, q.starts += first;
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

// Rounds queries to bytes with one scale each. A NaN or an infinity shows in the scale.
template <class Type>
void prepare_rounded(const float* const* queries, int count, float scale, int dim, uint8_t* out) {
  constexpr float kMagic = 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer
  const RoundedQueries to(out, dim);
  for (int n = 0; n < count; n++) {
    const float peak = row_peak(queries[n], dim);
    const float inverse = peak < kTiny ? 0.f : kLargestByte / peak;
    to.scales[n] = peak < kTiny ? 0.f : peak / kLargestByte * scale;
    for (int b = 0; b < dim / kKvBlock; b++) {
      const float* x = queries[n] + b * kKvBlock;
      int8_t q[kKvBlock];
      int sum = 0;
      for (int i = 0; i < kKvBlock; i++)
        q[i] = int8_t(float_bits(x[i] * inverse + kMagic) & 255), sum += q[i];
      to.sums[b * kQueries + n] = float(sum), to.starts[b * kQueries + n] = -Type::kZero * sum;
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

// The keys of kParts vectors of positions.
struct KeyPanels {
  const uint8_t* numbers;
  const uint16_t* scales;
  size_t part_apart;  // bytes of numbers
  int scale_apart;    // scales, from the first vector's to the second's
  int block_apart, minimum_apart, zero, num_blocks;

  KeyPanels(const PackedKeys& keys, int at, int dim)
      : numbers(panel_of(keys, at / kPanel) + at % kPanel * kQuad),
        scales(scale_of(keys, at / kPanel, 0) + at % kPanel),
        part_apart(kOwnLanes < kPanel ? kOwnLanes * kQuad : keys.panel_apart),
        scale_apart(kOwnLanes < kPanel ? kOwnLanes : int(keys.scales_apart / sizeof(uint16_t))),
        block_apart(keys.block_apart),
        minimum_apart(keys.minimum_apart),
        zero(keys.zero),
        num_blocks(dim / kKvBlock) {}
};

// Adds what a block's products with N queries stand for.
template <int N, int P>
[[gnu::always_inline]] inline void add_block(const KeyPanels& keys, RoundedQueries q,
                                             const Wide products[N][P], Own s[N][P]) {
#pragma GCC unroll 2
  for (int i = 0; i < P; i++) {
    const uint16_t* scales = keys.scales + i * keys.scale_apart;
    const Own scale = scales_at(scales);
#pragma GCC unroll 8
    for (int n = 0; n < N; n++) s[n][i] += to_floats(products[n][i]) * scale;
    if (!keys.minimum_apart) continue;
    const Own minimum = scales_at(scales + keys.minimum_apart);
#pragma GCC unroll 8
    for (int n = 0; n < N; n++) s[n][i] += minimum * q.sums[n];
  }
}

// Computes the scores of N queries.
template <int N, int P, Bytes kBytes, bool kPacked>
[[gnu::always_inline]] inline void panel_products(KeyPanels keys, RoundedQueries q, Ahead& ahead,
                                                  Own s[N][P]) {
  constexpr int kQuads = kKvBlock / kQuad, kNibbles = kPacked ? kQuads : kBytesOnly;
  const Wide zero = all_words(uint32_t(keys.zero) * 0x01010101u);
  for (int b = 0; b < keys.num_blocks; b++) {
    Wide products[N][P];
#pragma GCC unroll 8
    for (int n = 0; n < N; n++) {
      const Wide start = all_words(kHasZero<kBytes> ? uint32_t(q.starts[n]) : 0u);
      for (int i = 0; i < P; i++) products[n][i] = start;
    }
    add_rows<N, P, kBytes, kQuads, 1, kQueries, kNibbles>(
        {keys.numbers, keys.part_apart, kVectorCodes, q.quads}, zero, ahead, products);
    add_block<N, P>(keys, q, products, s);
    keys.numbers += kQuads * kVectorCodes / (kPacked ? 2 : 1), keys.scales += keys.block_apart;
    q.quads += kQuads * kQueries, q.sums += kQueries, q.starts += kQueries;
  }
}

// Does so with the panels that have visible positions. Meanwhile the next page's keys are
// prefetched.
template <int N, Bytes kBytes, bool kPacked>
void rounded_panels(const PageAttention& a, int from, Visible range, float scores[][kPage]) {
  // Few queries wait for memory, which is read best in order: by panel.
  constexpr int P = kOwnLanes == kPanel && N <= 2 ? 1 : kParts, kStep = P * kOwnLanes;
  const auto queries = RoundedQueries(a.queries, a.key_dim).from(from);
  Ahead ahead(a.queries);
  const int steps = kPage / kStep * a.key_dim / kQuad;
  if (a.next && !from) ahead = Ahead(a.next, a.key_bytes, steps);
  for (int at = range.begin / kStep * kStep; at < range.end; at += kStep) {
    Own s[N][P] = {};
    panel_products<N, P, kBytes, kPacked>(KeyPanels(*a.packed_keys, at, a.key_dim), queries, ahead,
                                          s);
    for (int n = 0; n < N; n++)
      for (int i = 0; i < P; i++)
        store_own(scores[from + n] + at + i * kOwnLanes, s[n][i] * queries.scales[n]);
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

// kPacked: two numbers share a byte, and are taken apart as they are multiplied.
template <Bytes kBytes, bool kPacked>
void rounded_scores(const PageAttention& a, Visible range, float scores[][kPage]) {
  if constexpr (kPacked)
    if (!a.values) return rounded_scores<kBytes, false>(a, range, scores);
  in_parts(a.num_queries,
           [&](int from, auto n) { rounded_panels<n, kBytes, kPacked>(a, from, range, scores); });
}

}  // namespace
