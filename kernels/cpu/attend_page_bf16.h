// As attend_page.h, with the products of bfloat16: twice as many an instruction (AVX-512 BF16).
//
// Keys, values, queries and probabilities are rounded to eight bits, sums are float32; what rounding activations to int8
// costs is several times as much.
#pragma once
#include <immintrin.h>

#include "attend_page.h"

namespace {

// Two bfloat16 in a dword, the first one low: what an instruction multiplies and adds at once.
typedef uint32_t Pair;

inline __m512 dot(__m512 sum, __m512i pairs, Pair all) {
  return _mm512_dpbf16_ps(sum, (__m512bh)pairs, (__m512bh)_mm512_set1_epi32(int(all)));
}

// Lane i: a's value i beside b's.
inline __m512i pair_lanes(__m512 a, __m512 b) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i from = _mm512_or_si512(lane, _mm512_slli_epi32(_mm512_or_si512(lane, _mm512_set1_epi32(16)), 16));
  return _mm512_permutexvar_epi16(from, (__m512i)_mm512_cvtne2ps_pbh(b, a));
}
inline __m512 halves_at(const uint16_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }

// Neighbours of x (n) become pairs, with zeros up to the next 32.
inline void pair_neighbours(const float* x, int n, Pair* out) {
  const auto part = [&](int i) {
    const int count = n - i < 0 ? 0 : n - i < 16 ? n - i : 16;
    return _mm512_maskz_loadu_ps(__mmask16((1u << count) - 1), x + i);
  };
  for (int i = 0; i < n; i += 32) _mm512_storeu_si512(out + i / 2, (__m512i)_mm512_cvtne2ps_pbh(part(i + 16), part(i)));
}

constexpr int kMostKeyPairs = 512;

// Scores of N queries with the page's keys, two panels and two dimensions at a time; the values are fetched meanwhile.
template <int N>
void paired_scores(const PageAttention& a, Visible range, float scores[][kPage]) {
  alignas(64) Pair queries[N * kMostKeyPairs];
  const int stride = (a.key_dim + 31) / 32 * 16;
  for (int n = 0; n < N; n++) pair_neighbours(a.queries[n], a.key_dim, queries + n * stride);
  constexpr int kBoth = 2 * kPanel;
  const uint16_t* line = a.values + (size_t)(range.begin / kBoth * kBoth) * a.value_dim;
  for (int panel = range.begin / kBoth * 2; panel * kPanel < range.end; panel += 2) {
    const uint16_t* low = a.keys + (size_t)panel * a.key_dim * kPanel;
    const uint16_t* high = low + (size_t)a.key_dim * kPanel;
    __m512 s[N][2];
    for (int n = 0; n < N; n++) s[n][0] = s[n][1] = _mm512_setzero_ps();
    for (int d = 0; d < a.key_dim; d += 2) {
      const auto keys = [&](const uint16_t* p) {
        return pair_lanes(halves_at(p + d * kPanel), halves_at(p + (d + 1) * kPanel));
      };
      const __m512i k0 = keys(low), k1 = keys(high);
      __builtin_prefetch(line, 0, 2);
      __builtin_prefetch(line + kLineHalves, 0, 2);
      line += 2 * kLineHalves;
#pragma GCC unroll 8
      for (int n = 0; n < N; n++) {
        const Pair q = queries[n * stride + d / 2];
        s[n][0] = dot(s[n][0], k0, q);
        s[n][1] = dot(s[n][1], k1, q);
      }
    }
    for (int n = 0; n < N; n++) {
      _mm512_store_ps(scores[n] + panel * kPanel, s[n][0]);
      _mm512_store_ps(scores[n] + (panel + 1) * kPanel, s[n][1]);
    }
  }
}

// sums = sums * rescale + probabilities . values for kVectors * 16 columns from `d`, two positions at a time.
template <int N, int kVectors>
void paired_columns(const PageAttention& a, Visible range, const Pair probabilities[][kPage / 2], const float* rescale,
                    int d) {
  __m512 s[N][kVectors];
  for (int n = 0; n < N; n++)
    for (int v = 0; v < kVectors; v++)
      s[n][v] = _mm512_mul_ps(_mm512_loadu_ps(a.sums[n] + d + 16 * v), _mm512_set1_ps(rescale[n]));
  const uint16_t* ahead = lines_ahead(a, d);
  for (int p = range.begin & ~1; p < range.end; p += 2) {
    // A hidden neighbour may be infinite, which no probability of zero makes harmless.
    const auto row = [&](int position, int v) {
      const bool is_hidden = position < range.begin || position >= range.end;
      return is_hidden ? _mm512_setzero_ps() : halves_at(a.values + (size_t)position * a.value_dim + d + 16 * v);
    };
    for (int i = 0; i < 2 * kVectors; i++) __builtin_prefetch(ahead + (p * kVectors + i) * kLineHalves, 0, 2);
    __m512i values[kVectors];
    for (int v = 0; v < kVectors; v++) values[v] = pair_lanes(row(p, v), row(p + 1, v));
#pragma GCC unroll 8
    for (int n = 0; n < N; n++)
      for (int v = 0; v < kVectors; v++) s[n][v] = dot(s[n][v], values[v], probabilities[n][p / 2]);
  }
  for (int n = 0; n < N; n++)
    for (int v = 0; v < kVectors; v++) _mm512_storeu_ps(a.sums[n] + d + 16 * v, s[n][v]);
}

template <int N>
void paired_values(const PageAttention& a, Visible range, const float probabilities[][kPage], const float* rescale) {
  alignas(64) Pair pairs[N][kPage / 2];
  for (int n = 0; n < N; n++) pair_neighbours(probabilities[n], kPage, pairs[n]);
  int d = 0;
  for (; d + 32 <= a.value_dim; d += 32) paired_columns<N, 2>(a, range, pairs, rescale, d);
  if (d < a.value_dim) paired_columns<N, 1>(a, range, pairs, rescale, d);
}

struct PairedAttention {
  template <int N>
  static void scores(const PageAttention& a, Visible range, float scores[][kPage]) {
    paired_scores<N>(a, range, scores);
  }
  template <int N>
  static void values(const PageAttention& a, Visible range, const float probabilities[][kPage], const float* rescale) {
    paired_values<N>(a, range, probabilities, rescale);
  }
};

// Keys that are values as well, or whose dimensions are no pairs, stay with float32.
void attend_page_rounded(const PageAttention& a) {
  const bool pairs = a.values && a.key_dim % 2 == 0 && a.key_dim <= 2 * kMostKeyPairs;
  (pairs ? attend_as<PairedAttention> : attend_as<FullAttention>)(a);
}

}  // namespace
