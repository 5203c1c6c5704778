// Computes the scores of rounded queries with a page's q8_0 keys (AVX-512 VNNI): four byte products
// per lane and instruction.
#pragma once
#include <immintrin.h>

#include "attend_page.h"
#include "kv_q8.h"

namespace {

// Queries in blocks of 32, like the keys: [dim / 4][count] words of four numbers; then scales [dim
// / 32][count]; then corrections [dim / 32][count], which remove what the 128 added to each byte of
// a key contributes to a product.
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

inline __m512 scales_at(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
}

// Computes the scores of N queries with the panel of keys at `first`. Meanwhile the memory at the
// same distance behind `ahead` is prefetched.
template <int N>
[[gnu::always_inline]] inline void panel_products(const uint8_t* panel, const RoundedQueries& q,
                                                  int key_dim, const uint8_t* ahead, int first,
                                                  float scores[][kPage]) {
  constexpr int kQuads = kKvBlock / kQuad;
  fetch_lines(ahead + kPanel * key_dim, key_dim);  // the scales
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
        products[n] =
            _mm512_dpbusd_epi32(products[n], keys, _mm512_set1_epi32(int(q.quads[i * N + n])));
    }
    const __m512 scale = scales_at(panel_scales(panel, key_dim) + b * kPanel);
    for (int n = 0; n < N; n++)
      s[n] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products[n]),
                             scale * _mm512_set1_ps(q.scales[b * N + n]), s[n]);
  }
  for (int n = 0; n < N; n++) _mm512_store_ps(scores[n] + first, s[n]);
}

}  // namespace
