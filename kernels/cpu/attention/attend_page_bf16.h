// The same as attend_page.h for a page of bfloat16 pairs: one instruction multiplies and adds two
// values (AVX-512 BF16).
//
// Keys, values, queries and probabilities are rounded to bfloat16 and sums are float32; rounding
// activations to int8 loses several times as much.
#pragma once
#include "attend_page.h"
#include "kv_bf16.h"

namespace {

constexpr int kFetchAhead = 8192, kFetchAgain = 1024;  // in bytes

// Prefetches the lines, and again a little later: processors drop prefetches that find no room.
inline void fetch_lines_twice(const uint8_t* p, int bytes) {
  fetch_lines(p, bytes);
  fetch_lines(p - kFetchAgain, bytes);
}

inline const Pair* pairs(const uint8_t* p) { return (const Pair*)p; }
inline __m512 dot(__m512 sum, __m512i pairs, Pair all) {
  return _mm512_dpbf16_ps(sum, (__m512bh)pairs, (__m512bh)_mm512_set1_epi32(int(all)));
}

// Computes the scores of N queries with the page's keys, two panels at a time. Meanwhile memory a
// fixed distance ahead is prefetched: keys, then values.
template <int N>
void paired_scores(const PageAttention& a, Visible range, float scores[][kPage]) {
  const int count = a.key_dim / 2;
  for (int first = range.begin / kBoth * kBoth; first < range.end; first += kBoth) {
    const Pair* queries = pairs(a.queries);
    const Pair* keys = pairs(a.keys) + (size_t)first * count;
    __m512 s[N][2];
    for (int n = 0; n < N; n++) s[n][0] = s[n][1] = _mm512_setzero_ps();
    for (int d = 0; d < count; d++, queries += N, keys += kBoth) {
      const __m512i k0 = _mm512_loadu_si512(keys), k1 = _mm512_loadu_si512(keys + kPanel);
      fetch_lines_twice((const uint8_t*)keys + kFetchAhead, 2 * kLine);
#pragma GCC unroll 8
      for (int n = 0; n < N; n++) {
        s[n][0] = dot(s[n][0], k0, queries[n]);
        s[n][1] = dot(s[n][1], k1, queries[n]);
      }
    }
    for (int n = 0; n < N; n++)
      for (int i = 0; i < 2; i++) _mm512_store_ps(scores[n] + first + i * kPanel, s[n][i]);
  }
}

// Rounds the probabilities of each two adjacent positions to a pair.
inline void pair_positions(const float probabilities[kPage], Pair out[kPage / 2]) {
  for (int i = 0; i < kPage; i += 32) {
    const __m512 low = _mm512_load_ps(probabilities + i),
                 high = _mm512_load_ps(probabilities + i + 16);
    _mm512_store_si512(out + i / 2, (__m512i)_mm512_cvtne2ps_pbh(high, low));
  }
}

// Returns a mask of the halves that are visible among the two positions from `at` on. A hidden old
// value may be infinite, and zero times infinity would be NaN.
inline __m512i visible_halves(Visible range, int at) {
  const unsigned low = at >= range.begin ? 0xffff : 0, high = at + 1 < range.end ? 0xffff0000 : 0;
  return _mm512_set1_epi32(int(low | high));
}

// Returns the memory to prefetch while a column is read: a fixed distance ahead, in this page or
// the next one.
inline const uint8_t* fetched_from(const PageAttention& a, const uint8_t* column) {
  const uint8_t *ahead = column + kFetchAhead, *end = a.values + (size_t)a.value_dim * 2 * kPage;
  if (ahead < end) return ahead;
  return a.next ? a.next + (ahead - end) : column;
}

// Computes sums = sums * rescale + probabilities . values for kVectors * 16 columns from `d`, two
// positions at a time.
template <int N, int kVectors>
void paired_columns(const PageAttention& a, Visible range, const Pair probabilities[][kPage / 2],
                    const float* rescale, int d) {
  __m512 s[N][kVectors];
  for (int n = 0; n < N; n++)
    for (int v = 0; v < kVectors; v++)
      s[n][v] = _mm512_mul_ps(_mm512_loadu_ps(a.sums[n] + d + 16 * v), _mm512_set1_ps(rescale[n]));
  const uint8_t *column = a.values + (size_t)d * 2 * kPage, *ahead = fetched_from(a, column);
  for (int p = range.begin & ~1; p < range.end; p += 2) {
    const Pair* row = pairs(column) + (size_t)(p / 2) * kVectors * 16;
    __m512i values[kVectors];
    for (int v = 0; v < kVectors; v++) values[v] = _mm512_loadu_si512(row + 16 * v);
    if (p < range.begin || p + 1 >= range.end) [[unlikely]]
      for (__m512i& v : values) v &= visible_halves(range, p);
    fetch_lines_twice(ahead + p / 2 * kVectors * kLine, kVectors * kLine);
#pragma GCC unroll 8
    for (int n = 0; n < N; n++)
      for (int v = 0; v < kVectors; v++) s[n][v] = dot(s[n][v], values[v], probabilities[n][p / 2]);
  }
  for (int n = 0; n < N; n++)
    for (int v = 0; v < kVectors; v++) _mm512_storeu_ps(a.sums[n] + d + 16 * v, s[n][v]);
}

void pair_scores(const PageAttention& a, Visible range, float scores[][kPage]) {
  with_count(a.num_queries, [&](auto n) { paired_scores<n>(a, range, scores); });
}

template <int N>
void paired_values(const PageAttention& a, Visible range, const float probabilities[][kPage],
                   const float* rescale) {
  alignas(64) Pair paired[N][kPage / 2];
  for (int n = 0; n < N; n++) pair_positions(probabilities[n], paired[n]);
  int d = 0;
  for (; d + 32 <= a.value_dim; d += 32) paired_columns<N, 2>(a, range, paired, rescale, d);
  if (d < a.value_dim) paired_columns<N, 1>(a, range, paired, rescale, d);
}
void pair_values(const PageAttention& a, Visible range, const float probabilities[][kPage],
                 const float* rescale) {
  with_count(a.num_queries, [&](auto n) { paired_values<n>(a, range, probabilities, rescale); });
}

}  // namespace
