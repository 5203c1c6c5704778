// Keys, values and queries as pairs of bfloat16 (kv_pages.h; AVX-512 BF16). Internal linkage.
#pragma once
#include <immintrin.h>

#include <algorithm>

#include "kv_pages.h"
#include "vector/simd.h"

namespace {
using namespace sharpi;

// Two bfloat16 in a dword, the first one in the low half.
typedef uint32_t Pair;

constexpr int kBoth = 2 * kPanel;  // positions, or columns, that are processed together

inline bool takes_pairs(const KvLayer& c) {
  return !(c.values_in_keys && c.value_dim) && c.key_dim % 2 == 0;
}

// Up to 32 numbers times `scale`, padded with zeros.
struct RoundedPairs {
  alignas(64) Pair pairs[kBoth / 2];

  RoundedPairs(const float* x, int count, float scale = 1.f) {
    const auto part = [&](int from) {
      const int left = std::clamp(count - from, 0, kLanes);
      return _mm512_mul_ps(_mm512_maskz_loadu_ps(__mmask16((1u << left) - 1), x + from),
                           _mm512_set1_ps(scale));
    };
    _mm512_store_si512(pairs, (__m512i)_mm512_cvtne2ps_pbh(part(kLanes), part(0)));
  }
};

void store_key_pairs(const float* key, int dim, int at, uint8_t* keys) {
  Pair* column = (Pair*)keys + size_t(at / kBoth) * (dim / 2) * kBoth + at % kBoth;
  for (int d = 0; d < dim; d += kBoth) {
    const RoundedPairs rounded(key + d, dim - d);
    for (int i = 0; i < std::min(kBoth, dim - d) / 2; i++)
      column[(d / 2 + i) * kBoth] = rounded.pairs[i];
  }
}

void store_value_pairs(const float* value, int dim, int at, uint8_t* values) {
  const int stride = (dim + kLanes - 1) / kLanes * kLanes;
  for (int d = 0; d < dim; d += kBoth) {
    const RoundedPairs rounded(value + d, dim - d);
    const int width = std::min(kBoth, stride - d);
    uint16_t* row = (uint16_t*)values + size_t(d) * kPage + at / 2 * 2 * width + at % 2;
    for (int i = 0; i < width; i++) row[2 * i] = uint16_t(rounded.pairs[i / 2] >> i % 2 * 16);
  }
}

// Rounds the queries to pairs [dim / 2][count].
void prepare_pairs(const float* const* queries, int count, float scale, int dim, uint8_t* out) {
  for (int n = 0; n < count; n++)
    for (int d = 0; d < dim; d += kBoth) {
      const RoundedPairs rounded(queries[n] + d, dim - d, scale);
      for (int i = 0; i < std::min(kBoth, dim - d) / 2; i++)
        ((Pair*)out)[(d / 2 + i) * count + n] = rounded.pairs[i];
    }
}

}  // namespace
