// Computes the scores of rounded queries with a page's packed keys (AVX-512 VNNI): four byte
// products per lane and instruction.
#pragma once
#include <immintrin.h>

#include "attend_page.h"
#include "packed_view.h"

namespace {

// Queries in blocks of 32, like the keys: [dim / 4][count] words of four numbers; then scales [dim
// / 32][count]; then corrections [dim / 32][count], which remove what the 128 added to each byte of
// a key contributes to a product; then their sums [dim / 32][count], which minimums multiply.
struct RoundedQueries {
  uint32_t* quads;
  float* scales;
  int32_t* offsets;
  float* sums;

  RoundedQueries(const uint8_t* at, int dim, int count)
      : quads((uint32_t*)at),
        scales((float*)(quads + dim / kQuad * count)),
        offsets((int32_t*)(scales + dim / kKvBlock * count)),
        sums((float*)(offsets + dim / kKvBlock * count)) {}
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
      to.offsets[b * count + n] = -kLevelZero * sum;
      to.sums[b * count + n] = to.scales[b * count + n] * float(sum);
      for (int i = 0; i < kKvBlock / kQuad; i++)
        memcpy(to.quads + (b * kKvBlock / kQuad + i) * count + n, q + i * kQuad, kQuad);
    }
}

inline __m512 scales_at(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
}

// Adds what the minimums of a block's numbers contribute to the scores.
template <int N>
[[gnu::always_inline]] inline void add_minimums(__m512 minimums, const RoundedQueries& q, int block,
                                                __m512 s[N]) {
  for (int n = 0; n < N; n++)
    s[n] = _mm512_fmadd_ps(minimums, _mm512_set1_ps(q.sums[block * N + n]), s[n]);
}

// Computes the scores of N queries with a panel of keys. Meanwhile `num_ahead` bytes at `ahead` are
// prefetched for each block.
template <int N>
[[gnu::always_inline]] inline void panel_products(const PackedKeys& keys, int panel,
                                                  const RoundedQueries& q, int key_dim,
                                                  const uint8_t* ahead, int num_ahead,
                                                  float scores[][kPage]) {
  constexpr int kQuads = kKvBlock / kQuad;
  __m512 s[N];
  for (int n = 0; n < N; n++) s[n] = _mm512_setzero_ps();
  for (int b = 0; b < key_dim / kKvBlock; b++, ahead += num_ahead) {
    fetch_lines(ahead, num_ahead);
    __m512i products[N];
    for (int n = 0; n < N; n++) products[n] = _mm512_set1_epi32(q.offsets[b * N + n]);
    const uint8_t* numbers = keys.panel(panel);
#pragma GCC unroll 8
    for (int i = b * kQuads; i < (b + 1) * kQuads; i++) {
      const __m512i quads = _mm512_loadu_si512(numbers + i * kLine);
#pragma GCC unroll 8
      for (int n = 0; n < N; n++)
        products[n] =
            _mm512_dpbusd_epi32(products[n], quads, _mm512_set1_epi32(int(q.quads[i * N + n])));
    }
    const uint16_t* at = keys.scale(panel, b);
    const __m512 scale = scales_at(at);
    for (int n = 0; n < N; n++)
      s[n] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products[n]),
                             scale * _mm512_set1_ps(q.scales[b * N + n]), s[n]);
    if (keys.minimum_apart) add_minimums<N>(scales_at(at + keys.minimum_apart), q, b, s);
  }
  for (int n = 0; n < N; n++) _mm512_store_ps(scores[n] + panel * kPanel, s[n]);
}

// Does so with the panels that have visible positions. Meanwhile the values are prefetched.
template <int N>
void rounded_panels(const PageAttention& a, const PackedKeys& keys, Visible range,
                    float scores[][kPage]) {
  const RoundedQueries queries(a.queries, a.key_dim, N);
  const int blocks = kPage / kPanel * (a.key_dim / kKvBlock);
  const int num_ahead = a.values ? int(a.value_bytes / blocks) : 0;
  for (int p = range.begin / kPanel; p * kPanel < range.end; p++)
    panel_products<N>(keys, p, queries, a.key_dim,
                      a.values + size_t(p) * (a.key_dim / kKvBlock) * num_ahead, num_ahead, scores);
}

}  // namespace
