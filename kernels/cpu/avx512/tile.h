// A tile of unpacked weights, 32 rows x 256 columns, and its product with many tokens.
#pragma once
#include "runtime/read_ahead.h"
#include "token_block.h"

namespace sharpi::avx512 {
namespace {

struct alignas(64) Tile {
  // [column / 4][row / 16][16 rows x 4 columns], as vpdpbusd takes them
  uint8_t w[64][kHalves][64];
  float scale[kMaxGroups][kHalves][kLanes];
  float offset[kMaxGroups][kHalves][kLanes];
};

// Returns how many tokens are multiplied with a tile at once, within 32 registers: 6 x 2 x (sum +
// product) + 3, or, where a part has two groups, 4 x 2 x (sum + part + product) + 3.
constexpr int tokens_at_once(TileKind kind) { return kind.part_groups() == 1 ? 6 : 4; }

// The destination of unpacked weights: 16 of a tile's rows.
struct TileHalf {
  Tile& tile;
  const int half;
  ReadAhead& ahead;

  void scale(int group, Floats x) { _mm512_store_ps(tile.scale[group][half], x); }
  void offset(int group, Floats x) { _mm512_store_ps(tile.offset[group][half], x); }
  // Stores 32 columns from 32 * part on.
  void weights(int part, const Ints w[8]) {
    for (int k = 0; k < 8; k++) store(tile.w[8 * part + k][half], w[k]);
    ahead.advance();
  }
};

// Computes the integer products of one group: p[n][half] += w . token n.
template <TileKind kKind, int kTokens>
inline void multiply_group(const Tile& tile, int group, const TokenBlock<kKind>* tokens,
                           Ints p[][kHalves]) {
  constexpr int kSteps = kKind.group_columns / 4;
  const uint8_t (*w)[kHalves][64] = tile.w + group * kSteps;
#pragma GCC unroll 8
  for (int k = 0; k < kSteps; k++) {
    Ints w0 = load(w[k][0]), w1 = load(w[k][1]);
    // otherwise each product loads them again, and loads are the limit
    asm("" : "+v"(w0), "+v"(w1));
#pragma GCC unroll 8
    for (int n = 0; n < kTokens; n++) {
      const Ints x = dwords(load_dword(tokens[n].q + group * kKind.group_columns + 4 * k));
      p[n][0] = _mm512_dpbusd_epi32(p[n][0], w0, x);
      p[n][1] = _mm512_dpbusd_epi32(p[n][1], w1, x);
    }
  }
}

// Computes out[n][32] += tile . block `block` of token n, over the first `num_parts` x 32 columns.
template <TileKind kKind, int kTokens>
[[gnu::noinline]] void multiply_tile(const Tile& tile, int num_parts, const void* const* tokens,
                                     int block, float* out, ReadAhead& ahead) {
  TokenBlock<kKind> token[kTokens];
  Floats sum[kTokens][kHalves], part[kTokens][kHalves];
  for (int n = 0; n < kTokens; n++) {
    token[n].set(tokens[n], block);
    for (int h = 0; h < kHalves; h++) sum[n][h] = _mm512_load_ps(out + n * kTileRows + h * kLanes);
  }
#pragma GCC unroll 1
  for (int i = 0; i < num_parts; i++) {
    const auto group = [&](int j) __attribute__((always_inline)) {
      const int g = i * kKind.part_groups() + j;
      Ints p[kTokens][kHalves];
      for (int n = 0; n < kTokens; n++) p[n][0] = p[n][1] = token[n].begin(g);
      multiply_group<kKind, kTokens>(tile, g, token, p);
      for (int n = 0; n < kTokens; n++)
        for (int h = 0; h < kHalves; h++)
          add_group<kKind>(part[n][h], sum[n][h], p[n][h], j, g, _mm512_load_ps(tile.scale[g][h]),
                           _mm512_load_ps(tile.offset[g][h]), token[n]);
    };
    group(0);
    if (kKind.part_groups() == 2) group(1);
    for (int n = 0; n < kTokens; n++)
      for (int h = 0; h < kHalves; h++) add_part<kKind>(sum[n][h], part[n][h], i, token[n]);
    ahead.advance();
  }
  for (int n = 0; n < kTokens; n++)
    for (int h = 0; h < kHalves; h++) _mm512_store_ps(out + n * kTileRows + h * kLanes, sum[n][h]);
}

}  // namespace
}  // namespace sharpi::avx512
