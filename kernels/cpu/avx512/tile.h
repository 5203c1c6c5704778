// A tile of unpacked weights, 32 rows x 256 columns, and its product with many tokens.
#pragma once
#include "group_sums.h"
#include "prefetch.h"

namespace sharpi::avx512 {

struct alignas(64) Tile {
  uint8_t w[64][kHalves]
           [64];  // [column / 4][row / 16][16 rows x 4 columns], as vpdpbusd takes them
  float scale[kMaxGroups][kHalves][kLanes];
  float offset[kMaxGroups][kHalves][kLanes];
};
constexpr int kStepBytes = sizeof(Tile::w[0]);

// Where unpacked weights go: half of a tile.
struct TileSink {
  Tile& tile;
  const int half;

  void scale(int group, Floats x) { _mm512_store_ps(tile.scale[group][half], x); }
  void offset(int group, Floats x) { _mm512_store_ps(tile.offset[group][half], x); }
  // 32 columns from 32 * part
  void weights(int part, const Ints w[8]) {
    for (int k = 0; k < 8; k++) store(tile.w[8 * part + k][half], w[k]);
  }
};

// Integer products of one group: p[n][half] += w . q[n]
template <int kTokens, int kSteps>
inline void multiply_group(const uint8_t* w, const int8_t* const q[], int column,
                           Ints p[][kHalves]) {
#pragma GCC unroll 8
  for (int k = 0; k < kSteps; k++) {
    Ints w0 = load(w + k * kStepBytes), w1 = load(w + k * kStepBytes + 64);
    asm("" : "+v"(w0), "+v"(w1));  // else each product loads them again, and loads are the limit
#pragma GCC unroll 8
    for (int n = 0; n < kTokens; n++) {
      const Ints x = dwords(load_dword(q[n] + column + 4 * k));
      p[n][0] = _mm512_dpbusd_epi32(p[n][0], w0, x);
      p[n][1] = _mm512_dpbusd_epi32(p[n][1], w1, x);
    }
  }
}

// out[n][32] += tile . block `block` of token n, over the first `num_groups` groups. Of 32
// registers, 6 tokens take 6 x 2 x (sum + product) + 3.
template <TileKind kKind, int kTokens>
[[gnu::noinline]] void multiply_tile(const Tile& tile, int num_groups, const void* const* tokens,
                                     int block, float* out, Prefetch& ahead) {
  constexpr int kSteps = kKind.group_columns / 4;
  const int8_t* q[kTokens];
  GroupSums<kKind> groups[kTokens];
  Floats sum[kTokens][kHalves];
  for (int n = 0; n < kTokens; n++) {
    q[n] = block_of(tokens[n], block).q;
    groups[n].set(block_of(tokens[n], block));
    sum[n][0] = sum[n][1] = _mm512_setzero_ps();
  }
#pragma GCC unroll 1
  for (int g = 0; g < num_groups; g++) {
    Ints p[kTokens][kHalves];
    for (int n = 0; n < kTokens; n++) p[n][0] = p[n][1] = groups[n].begin(g);
    multiply_group<kTokens, kSteps>(tile.w[g * kSteps][0], q, g * kKind.group_columns, p);
    for (int n = 0; n < kTokens; n++)
      for (int h = 0; h < kHalves; h++)
        sum[n][h] = add_group<kKind>(sum[n][h], p[n][h], tile.scale[g][h], tile.offset[g][h],
                                     groups[n].sum[g]);
    ahead.advance();
  }
  for (int n = 0; n < kTokens; n++)
    for (int h = 0; h < kHalves; h++)
      add_block(out + n * kTileRows + h * kLanes, sum[n][h], block_of(tokens[n], block).scale);
}

}  // namespace sharpi::avx512
