// Sums a page's packed values with 15-bit integer weights (AVX-512 VNNI): two 16-bit products per
// lane and instruction.
#pragma once
#include <immintrin.h>

#include "attend_page.h"
#include "packed_view.h"

namespace {

// The scales of a column relative to the largest visible magnitude, and that magnitude: halves
// without their sign sort as integers, a NaN above all.
struct ColumnScales {
  __m512 parts[kPage / kLanes];
  float largest;

  ColumnScales(const uint16_t* scales, Visible range) {
    const __m512i low = visible_bits(scales, range, 0),
                  high = visible_bits(scales, range, kPage / 2);
    const __m512i magnitude = _mm512_set1_epi16(0x7fff);
    const __m512i both = _mm512_max_epu16(low & magnitude, high & magnitude);
    __m256i quarter =
        _mm256_max_epu16(_mm512_castsi512_si256(both), _mm512_extracti64x4_epi64(both, 1));
    __m128i eighth =
        _mm_max_epu16(_mm256_castsi256_si128(quarter), _mm256_extracti128_si256(quarter, 1));
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
  // Loads 32 scales in their stored order. Scales of hidden positions become 0.
  static __m512i visible_bits(const uint16_t* scales, Visible range, int from) {
    const auto below = [&](int end) {
      return end <= from ? 0u : end >= from + 32 ? ~0u : (1u << (end - from)) - 1;
    };
    return _mm512_maskz_loadu_epi16(below(range.end) & ~below(range.begin), scales + from);
  }
};

// Probabilities of N queries, as parts of each query's largest one in the page, in units of 1 /
// kWhole.
constexpr float kWhole = 32767.f;
constexpr float kNothing = 1e-30f;  // a page whose largest probability is below adds nothing
template <int N>
struct PageShares {
  alignas(64) float shares[N][kPage];
  float unit[N];

  explicit PageShares(const float probabilities[][kPage]) {
    for (int n = 0; n < N; n++) {
      __m512 peak = _mm512_load_ps(probabilities[n]);
      for (int i = kLanes; i < kPage; i += kLanes)
        peak = _mm512_max_ps(peak, _mm512_load_ps(probabilities[n] + i));
      const float largest = _mm512_reduce_max_ps(peak);
      const __m512 inverse = _mm512_set1_ps(largest > kNothing ? kWhole / largest : 0.f);
      for (int i = 0; i < kPage; i += kLanes)
        _mm512_store_ps(shares[n] + i, _mm512_load_ps(probabilities[n] + i) * inverse);
      unit[n] = largest > kNothing ? largest / kWhole : 0.f;
    }
  }
  // Multiplies a query's shares by scales, as pairs of 16 bits for values 16 positions apart.
  void pair_with(const ColumnScales& scales, int n, uint32_t* pairs) const {
    const auto weights = [&](int i) {
      return _mm512_cvtps_epi32(_mm512_load_ps(shares[n] + i * kLanes) * scales.parts[i]);
    };
    for (int half = 0; half < 2; half++) {
      const __m512i high = _mm512_slli_epi32(weights(2 * half + 1), 16);
      const __m512i low = _mm512_and_si512(weights(2 * half), _mm512_set1_epi32(0xffff));
      _mm512_store_si512(pairs + half * kPairApart, _mm512_or_si512(low, high));
    }
  }
};

// Returns the sum of the minimums of visible positions, each times the query's probability.
inline float sum_minimums(const uint16_t* minimums, Visible range, const float* probabilities) {
  __m512 total = _mm512_setzero_ps();
  for (int i = 0; i < kPage; i += kLanes) {
    const auto below = [&](int end) {
      return end <= i ? 0u : end >= i + kLanes ? 0xffffu : (1u << (end - i)) - 1;
    };
    const __mmask16 mask = __mmask16(below(range.end) & ~below(range.begin));
    const __m256i bits = _mm256_maskz_loadu_epi16(mask, minimums + i);
    total = _mm512_fmadd_ps(_mm512_cvtph_ps(bits), _mm512_load_ps(probabilities + i), total);
  }
  return _mm512_reduce_add_ps(total);
}

// Computes sums = sums * rescale + unit * pairs . values + added for the 32 values of a column.
// Meanwhile `num_ahead` bytes at `ahead` are prefetched for each half of the positions.
template <int N>
void column_products(const uint8_t* column, Visible range, const uint32_t pairs[][kPage / 2],
                     const float* unit, const float* rescale, const float* added,
                     const uint8_t* ahead, int num_ahead, float* const* sums) {
  __m512i products[N][2];
  for (int n = 0; n < N; n++) products[n][0] = products[n][1] = _mm512_setzero_si512();
  const __m512i zero_level = _mm512_set1_epi8(char(kLevelZero));
  for (int half = range.begin / kKvBlock; half * kKvBlock < range.end; half++) {
    fetch_lines(ahead + half * num_ahead, num_ahead);
    const int left = range.end - half * kKvBlock, count = left < kPairApart ? left : kPairApart;
    for (int i = half * kPairApart; i < half * kPairApart + count; i++) {
      const __m512i both = _mm512_loadu_si512(column + i * 2 * kKvBlock) ^ zero_level;
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
      const __m512 before = _mm512_fmadd_ps(_mm512_loadu_ps(sum), _mm512_set1_ps(rescale[n]),
                                            _mm512_set1_ps(added[n]));
      _mm512_storeu_ps(sum, _mm512_fmadd_ps(_mm512_cvtepi32_ps(products[n][i]),
                                            _mm512_set1_ps(unit[n]), before));
    }
}

// Returns true if all queries see the same positions of the page.
inline bool is_alike(const PageAttention& a) {
  const Visible all = visible(a, 0);
  for (int n = 1; n < a.num_queries; n++)
    if (const Visible v = visible(a, n); v.begin != all.begin || v.end != all.end) return false;
  return true;
}

// Does so for all columns. Meanwhile the next page's keys are prefetched.
template <int N>
void rounded_columns(const PageAttention& a, const PackedValues& values, Visible range,
                     const float probabilities[][kPage], const float* rescale) {
  const PageShares<N> shares(probabilities);
  const bool alike =
      is_alike(a);  // otherwise a query's rounding must depend on its own positions alone
  const int columns = a.value_dim / kKvBlock;
  const int num_ahead = a.next ? int(a.key_bytes / (2 * columns)) : 0;
  for (int c = 0; c < columns; c++) {
    alignas(64) uint32_t pairs[N][kPage / 2];
    float unit[N], added[N] = {}, *sums[N];
    ColumnScales scales(values.scale(c), visible(a, 0));
    for (int n = 0; n < N; n++) {
      if (!alike) scales = ColumnScales(values.scale(c), visible(a, n));
      shares.pair_with(scales, n, pairs[n]);
      unit[n] = shares.unit[n] * scales.largest, sums[n] = a.sums[n] + c * kKvBlock;
      if (values.minimum_apart)
        added[n] =
            sum_minimums(values.scale(c) + values.minimum_apart, visible(a, n), probabilities[n]);
    }
    column_products<N>(values.column(c), range, pairs, unit, rescale, added,
                       a.next + size_t(2) * c * num_ahead, num_ahead, sums);
  }
}

}  // namespace
