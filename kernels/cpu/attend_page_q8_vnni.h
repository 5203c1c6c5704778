// As attend_page.h, for a page of q8_0 with AVX-512 VNNI: products of whole numbers, straight on the blocks.
//
// Queries are rounded to int8. What a value is multiplied with, its probability and its
// block's scale, is rounded to 15 bits of the largest of a page.
#pragma once
#include <immintrin.h>

#include "attend_page_q8.h"

namespace {

// Queries in blocks of 32 as the keys are: [dim / 4][count] of four numbers a word, then scales [dim / 32][count], then
// what the 128 in each key's byte adds to a product, taken away [dim / 32][count].
struct RoundedQueries {
  uint32_t* quads;
  float* scales;
  int32_t* offsets;

  RoundedQueries(const uint8_t* at, int dim, int count)
      : quads((uint32_t*)at),
        scales((float*)(quads + dim / kQuad * count)),
        offsets((int32_t*)(scales + dim / kKvBlock * count)) {}
};

void prepare_rounded(const float* const* queries, int count, float scale, int dim, uint8_t* out) {
  const RoundedQueries to(out, dim, count);
  for (int n = 0; n < count; n++)
    for (int b = 0; b < dim / kKvBlock; b++) {
      float x[kKvBlock];
      int8_t q[kKvBlock];
      for (int i = 0; i < kKvBlock; i++) x[i] = queries[n][b * kKvBlock + i] * scale;
      quantise_part(x, q, to.scales[b * count + n]);
      int sum = 0;
      for (int i = 0; i < kKvBlock; i++) sum += q[i];
      to.offsets[b * count + n] = -128 * sum;
      for (int i = 0; i < kKvBlock / kQuad; i++)
        memcpy(to.quads + (b * kKvBlock / kQuad + i) * count + n, q + i * kQuad, kQuad);
    }
}

inline __m512 scales_at(const uint16_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }

constexpr int kLine = 64;

inline void fetch(const uint8_t* p, int bytes) {
  for (int i = 0; i < bytes; i += kLine) __builtin_prefetch(p + i, 0, 2);
}

// Scores of N queries with the panel of keys at `first`. What lies as far behind `ahead` is fetched meanwhile.
template <int N>
[[gnu::always_inline]] inline void panel_products(const uint8_t* panel, const RoundedQueries& q, int key_dim,
                                                  const uint8_t* ahead, int first, float scores[][kPage]) {
  constexpr int kQuads = kKvBlock / kQuad;
  fetch(ahead + kPanel * key_dim, key_dim);  // scales
  __m512 s[N];
  for (int n = 0; n < N; n++) s[n] = _mm512_setzero_ps();
  for (int b = 0; b < key_dim / kKvBlock; b++) {
    __m512i products[N];
    for (int n = 0; n < N; n++) products[n] = _mm512_set1_epi32(q.offsets[b * N + n]);
#pragma GCC unroll 8
    for (int i = b * kQuads; i < (b + 1) * kQuads; i++) {
      const __m512i keys = _mm512_loadu_si512(panel + i * kLine);
      __builtin_prefetch(ahead + i * kLine, 0, 2);
#pragma GCC unroll 8
      for (int n = 0; n < N; n++)
        products[n] = _mm512_dpbusd_epi32(products[n], keys, _mm512_set1_epi32(int(q.quads[i * N + n])));
    }
    const __m512 scale = scales_at(panel_scales(panel, key_dim) + b * kPanel);
    for (int n = 0; n < N; n++)
      s[n] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products[n]), scale * _mm512_set1_ps(q.scales[b * N + n]), s[n]);
  }
  for (int n = 0; n < N; n++) _mm512_store_ps(scores[n] + first, s[n]);
}

// The scales of a column beside the largest of those that are visible, and that one.
struct ColumnScales {
  __m512 parts[kPage / kLanes];
  float largest;

  ColumnScales(const uint8_t* column, Visible range) {
    const __m512i low = visible_bits(column, range, 0), high = visible_bits(column, range, kPage / 2);
    const __m512i both = _mm512_max_epu16(low, high);
    __m256i quarter = _mm256_max_epu16(_mm512_castsi512_si256(both), _mm512_extracti64x4_epi64(both, 1));
    __m128i eighth = _mm_max_epu16(_mm256_castsi256_si128(quarter), _mm256_extracti128_si256(quarter, 1));
    eighth = _mm_minpos_epu16(_mm_xor_si128(eighth, _mm_set1_epi16(-1)));
    largest = half_to_float(uint16_t(~_mm_cvtsi128_si32(eighth)));
    const __m512 inverse = _mm512_set1_ps(largest > 0 ? 1.f / largest : 0.f);
    for (int i = 0; i < 2; i++) {
      const __m512i bits = i ? high : low;
      parts[2 * i] = _mm512_cvtph_ps(_mm512_castsi512_si256(bits)) * inverse;
      parts[2 * i + 1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(bits, 1)) * inverse;
    }
  }

 private:
  // 32 scales as they are stored: in their order even as whole numbers, a NaN above all. Old ones of hidden positions are 0.
  static __m512i visible_bits(const uint8_t* column, Visible range, int from) {
    const auto below = [&](int end) { return end <= from ? 0u : end >= from + 32 ? ~0u : (1u << (end - from)) - 1; };
    return _mm512_maskz_loadu_epi16(below(range.end) & ~below(range.begin), column_scales(column) + from);
  }
};

// Probabilities of N queries, as parts of each one's largest in a page and of kWhole.
constexpr float kWhole = 32767.f;
constexpr float kNothing = 1e-30f;  // a page whose largest is below adds nothing
template <int N>
struct PageShares {
  alignas(64) float shares[N][kPage];
  float unit[N];

  explicit PageShares(const float probabilities[][kPage]) {
    for (int n = 0; n < N; n++) {
      __m512 peak = _mm512_load_ps(probabilities[n]);
      for (int i = kLanes; i < kPage; i += kLanes) peak = _mm512_max_ps(peak, _mm512_load_ps(probabilities[n] + i));
      const float largest = _mm512_reduce_max_ps(peak);
      const __m512 inverse = _mm512_set1_ps(largest > kNothing ? kWhole / largest : 0.f);
      for (int i = 0; i < kPage; i += kLanes)
        _mm512_store_ps(shares[n] + i, _mm512_load_ps(probabilities[n] + i) * inverse);
      unit[n] = largest > kNothing ? largest / kWhole : 0.f;
    }
  }
  // A query's shares times scales as pairs of 16 bits, for values 16 positions apart.
  void pair_with(const ColumnScales& scales, int n, uint32_t* pairs) const {
    const auto weights = [&](int i) {
      return _mm512_cvtps_epi32(_mm512_load_ps(shares[n] + i * kLanes) * scales.parts[i]);
    };
    for (int half = 0; half < 2; half++) {
      const __m512i high = _mm512_slli_epi32(weights(2 * half + 1), 16);
      _mm512_store_si512(pairs + half * kPairApart, _mm512_or_si512(weights(2 * half), high));
    }
  }
};

// sums = sums * rescale + unit * pairs . values, for a column's 32.
template <int N>
void column_products(const uint8_t* column, Visible range, const uint32_t pairs[][kPage / 2], const float* unit,
                     const float* rescale, const uint8_t* ahead, float* const* sums) {
  __m512i products[N][2];
  for (int n = 0; n < N; n++) products[n][0] = products[n][1] = _mm512_setzero_si512();
  fetch(ahead + kColumnCodes, kColumnBytes - kColumnCodes);
  for (int half = range.begin / kKvBlock; half * kKvBlock < range.end; half++) {
    const int left = range.end - half * kKvBlock, count = left < kPairApart ? left : kPairApart;
    for (int i = half * kPairApart; i < half * kPairApart + count; i++) {
      const __m512i both = _mm512_loadu_si512(column + i * 2 * kKvBlock);
      __builtin_prefetch(ahead + i * 2 * kKvBlock, 0, 2);
      const __m512i low = _mm512_cvtepi8_epi16(_mm512_castsi512_si256(both));
      const __m512i high = _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(both, 1));
#pragma GCC unroll 8
      for (int n = 0; n < N; n++) {
        const __m512i pair = _mm512_set1_epi32(int(pairs[n][i]));
        products[n][0] = _mm512_dpwssd_epi32(products[n][0], low, pair);
        products[n][1] = _mm512_dpwssd_epi32(products[n][1], high, pair);
      }
    }
  }
  for (int n = 0; n < N; n++)
    for (int i = 0; i < 2; i++) {
      float* sum = sums[n] + i * kLanes;
      const __m512 before = _mm512_loadu_ps(sum) * _mm512_set1_ps(rescale[n]);
      _mm512_storeu_ps(sum, _mm512_fmadd_ps(_mm512_cvtepi32_ps(products[n][i]), _mm512_set1_ps(unit[n]), before));
    }
}

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
  static void values(const PageAttention& a, Visible range, const float probabilities[][kPage], const float* rescale) {
    const PageShares<N> shares(probabilities);
    const bool alike = is_alike(a);  // else a query's rounding is that of its own positions, whoever is met with it
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
      column_products<N>(a.values + at, range, pairs, unit, rescale, (a.next ? a.next : a.keys) + at, sums);
    }
  }
};

inline bool takes_whole_numbers(const KvLayer& c) { return !c.values_in_keys; }

}  // namespace
