// The properties of a quant type besides its blocks, and of a token besides its values, that the
// kernels need.
#pragma once
#include "matmul/matmul.h"
#include "registers.h"

namespace sharpi::avx512 {
namespace {

constexpr int kLanes = 16;      // rows of a register
constexpr int kHalves = 2;      // registers of a tile's 32 rows
constexpr int kParts = 8;       // of 32 columns, with one activation scale
constexpr int kMaxGroups = 16;  // of 256 columns: 16 groups of 16, or 8 of 32

// weight = scale * (w - bias) + offset, with w in 0..255; only some types have an offset.
struct TileKind {
  int group_columns;  // columns that share a scale: 16 or 32
  bool has_offsets;
  int bias;

  constexpr int part_groups() const { return 32 / group_columns; }
};

// One token's block of 256 columns.
template <TileKind kKind>
struct alignas(64) TokenBlock {
  // -bias * sum of the group's values: the initial value of its integer sum
  int32_t start[kMaxGroups];
  float sum[kMaxGroups];  // scale * sum of the group's values: multiplied with the offsets
  const int8_t* q;
  const float* scale;

  void set(const void* token, int block) {
    const Activation& a = static_cast<const Activation*>(token)[block];
    const int16_t* sums = kKind.group_columns == 16 ? a.sum16 : a.sum32;
    for (int g = 0; g < kParts * kKind.part_groups(); g += 8) {
      const __m256i x = _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i*)(sums + g)));
      const __m256i bias = _mm256_set1_epi32(-kKind.bias);
      if (kKind.bias) _mm256_store_si256((__m256i*)(start + g), _mm256_mullo_epi32(x, bias));
      if (kKind.has_offsets)
        _mm256_store_ps(sum + g, _mm256_mul_ps(_mm256_cvtepi32_ps(x), scales(a, g)));
    }
    q = a.q;
    scale = a.scale;
  }
  Ints begin(int group) const { return kKind.bias ? dwords(start[group]) : zero(); }

 private:
  // Returns the scales of groups g..g+7.
  static __m256 scales(const Activation& a, int g) {
    const __m256 all = _mm256_loadu_ps(a.scale);
    if (kKind.group_columns == 32) return all;
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    return _mm256_permutevar8x32_ps(all, _mm256_add_epi32(twice, _mm256_set1_epi32(g / 2)));
  }
};

// Adds a token's floats in one fixed order: for each part, the products of its groups are summed to
// `part`, the offsets are added to `sum`, then the part is.
template <TileKind kKind>
inline void add_group(Floats& part, Floats& sum, Ints product, int j, int group,
                      const Floats& scale, const Floats& offset, const TokenBlock<kKind>& token) {
  const Floats x = to_float(product);
  part = j ? _mm512_fmadd_ps(x, scale, part) : _mm512_mul_ps(x, scale);
  if (kKind.has_offsets) sum = _mm512_fmadd_ps(_mm512_set1_ps(token.sum[group]), offset, sum);
}
template <TileKind kKind>
inline void add_part(Floats& sum, Floats part, int index, const TokenBlock<kKind>& token) {
  sum = _mm512_fmadd_ps(part, _mm512_set1_ps(token.scale[index]), sum);
}

}  // namespace
}  // namespace sharpi::avx512
