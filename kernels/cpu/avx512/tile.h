// A tile of unpacked weights, 32 rows x 256 columns, and its product with a few tokens.
//
// The only kernel for int8 activations: one token or many, a token's floats are added in the same
// order.
#pragma once
#include "prefetch.h"
#include "registers.h"

namespace sharpi::avx512 {

constexpr int kLanes = 16;                // rows of a register
constexpr int kHalves = 2;                // registers of a tile's 32 rows
constexpr int kMaxGroups = 16;            // of 16 columns; or 8 of 32
constexpr int kStepBytes = 64 * kHalves;  // of a tile's weights: 32 rows x 4 columns

// weight = scale * (w - bias) + offset, the offset only where the type has one.
struct alignas(64) Tile {
  uint8_t w[64][kHalves]
           [64];  // [column / 4][row / 16][16 rows x 4 columns], as vpdpbusd takes them
  float scale[kMaxGroups][kHalves][kLanes];
  float offset[kMaxGroups][kHalves][kLanes];
};

// What the kernel must know of a type beside its blocks.
struct TileKind {
  int group_columns;  // that share a scale: 16 or 32
  bool has_offsets;
  int bias;
};

// What one token brings to every group, beside its values.
template <TileKind kKind>
struct GroupSums {
  alignas(64)
      int32_t start[kMaxGroups];  // -bias * sum of the group's values: its integer sum begins there
  alignas(64) float sum[kMaxGroups];  // meets the offsets

  void set(const Activation& a) {
    const int16_t* sums = kKind.group_columns == 16 ? a.sum16 : a.sum32;
    for (int g = 0; g < 256 / kKind.group_columns;
         g += 8) {  // loads soon follow: they wait longer for 64 bytes
      const __m256i eight = _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i*)(sums + g)));
      if (kKind.bias)
        _mm256_store_si256((__m256i*)(start + g),
                           _mm256_mullo_epi32(eight, _mm256_set1_epi32(-kKind.bias)));
      if (kKind.has_offsets) _mm256_store_ps(sum + g, _mm256_cvtepi32_ps(eight));
    }
  }
};

// Integer products of one group: p[n][half] += w . q[n]
template <int kTokens, int kSteps>
inline void multiply_group(const uint8_t* w, const int8_t* const q[], int column,
                           Ints p[][kHalves]) {
#pragma GCC unroll 8
  for (int k = 0; k < kSteps; k++) {
    Ints w0 = load(w + k * kStepBytes), w1 = load(w + k * kStepBytes + 64);
    asm(""
        : "+v"(w0),
          "+v"(w1));  // kept in registers: folded into each product, loads would be the limit
#pragma GCC unroll 8
    for (int n = 0; n < kTokens; n++) {
      const Ints x = dwords(load_dword(q[n] + column + 4 * k));
      p[n][0] = _mm512_dpbusd_epi32(p[n][0], w0, x);
      p[n][1] = _mm512_dpbusd_epi32(p[n][1], w1, x);
    }
  }
}

// out[n][32] += tile . block `block` of token n, over the first `num_groups` groups
template <TileKind kKind, int kTokens>
[[gnu::noinline]] void multiply(const Tile& tile, int num_groups, const void* const* tokens,
                                int block, float* out, Prefetch& ahead) {
  constexpr int kSteps = kKind.group_columns / 4;
  const int8_t* q[kTokens];
  GroupSums<kKind> groups[kTokens];
  Floats sum[kTokens][kHalves];
  for (int n = 0; n < kTokens; n++) {
    const Activation& activation = static_cast<const Activation*>(tokens[n])[block];
    sum[n][0] = sum[n][1] = _mm512_setzero_ps();
    q[n] = activation.q;
    groups[n].set(activation);
  }
#pragma GCC unroll 1
  for (int g = 0; g < num_groups; g++) {
    Ints p[kTokens][kHalves];
    for (int n = 0; n < kTokens; n++)
      p[n][0] = p[n][1] = kKind.bias ? dwords(groups[n].start[g]) : zero();
    multiply_group<kTokens, kSteps>(tile.w[g * kSteps][0], q, g * kKind.group_columns, p);
    for (int n = 0; n < kTokens; n++)
      for (int h = 0; h < kHalves; h++) {
        sum[n][h] = _mm512_fmadd_ps(to_float(p[n][h]), _mm512_load_ps(tile.scale[g][h]), sum[n][h]);
        if (kKind.has_offsets)
          sum[n][h] = _mm512_fmadd_ps(_mm512_set1_ps(groups[n].sum[g]),
                                      _mm512_load_ps(tile.offset[g][h]), sum[n][h]);
      }
    ahead.advance();
  }
  for (int n = 0; n < kTokens; n++) {
    const Floats scale = _mm512_set1_ps(static_cast<const Activation*>(tokens[n])[block].scale);
    for (int h = 0; h < kHalves; h++) {
      float* o = out + n * kTileRows + h * kLanes;
      _mm512_store_ps(o, _mm512_fmadd_ps(sum[n][h], scale, _mm512_load_ps(o)));
    }
  }
}

}  // namespace sharpi::avx512
