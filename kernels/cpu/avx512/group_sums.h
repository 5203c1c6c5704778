// What the kernels know of a type beside its blocks, and what a token brings beside its values.
#pragma once
#include "../matmul.h"
#include "registers.h"

namespace sharpi::avx512 {

constexpr int kLanes = 16;      // rows of a register
constexpr int kHalves = 2;      // registers of a tile's 32 rows
constexpr int kMaxGroups = 16;  // of 256 columns: 16 of 16, or 8 of 32

// weight = scale * (w - bias) + offset, with w of 0..255; the offset only where the type has one.
struct TileKind {
  int group_columns;  // that share a scale: 16 or 32
  bool has_offsets;
  int bias;
};

template <TileKind kKind>
struct alignas(64) GroupSums {
  int32_t start[kMaxGroups];  // -bias * sum of the group's values: its integer sum begins there
  float sum[kMaxGroups];      // meets the offsets

  void set(const Activation& a) {
    const int16_t* sums = kKind.group_columns == 16 ? a.sum16 : a.sum32;
    for (int g = 0; g < 256 / kKind.group_columns; g += 8) {
      const __m256i x = _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i*)(sums + g)));
      const __m256i bias = _mm256_set1_epi32(-kKind.bias);
      if (kKind.bias) _mm256_store_si256((__m256i*)(start + g), _mm256_mullo_epi32(x, bias));
      if (kKind.has_offsets) _mm256_store_ps(sum + g, _mm256_cvtepi32_ps(x));
    }
  }
  Ints begin(int group) const { return kKind.bias ? dwords(start[group]) : zero(); }
};

// The one order in which a token's floats are added: this, group after group, then the block's.
template <TileKind kKind>
inline Floats add_group(Floats sum, Ints product, const float* scale, const float* offset,
                        float group_sum) {
  sum = _mm512_fmadd_ps(to_float(product), _mm512_load_ps(scale), sum);
  if (!kKind.has_offsets) return sum;
  return _mm512_fmadd_ps(_mm512_set1_ps(group_sum), _mm512_load_ps(offset), sum);
}
inline void add_block(float* out, Floats sum, float scale) {
  _mm512_store_ps(out, _mm512_fmadd_ps(sum, _mm512_set1_ps(scale), _mm512_load_ps(out)));
}

}  // namespace sharpi::avx512
