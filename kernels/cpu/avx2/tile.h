// A tile of unpacked weights, 32 rows x 256 columns, and its product with a few of many tokens.
#pragma once
#include "runtime/read_ahead.h"
#include "token_block.h"

namespace sharpi::avx2 {
namespace {

constexpr int kTokensAtOnce = 4;  // with two registers of rows: the eight sums fit beside operands

struct alignas(64) Tile {
  uint8_t w[64][kQuarters]
           [32];  // [column / 4][row / 8][8 rows x 4 columns], as vpmaddubsw takes them
  float scale[kMaxGroups][kTileRows];
  float offset[kMaxGroups][kTileRows];
};

// Where unpacked weights go: 8 of a tile's rows.
struct TileQuarter {
  Tile& tile;
  const int quarter;

  void scale(int group, Floats x) { _mm256_store_ps(tile.scale[group] + quarter * kLanes, x); }
  void offset(int group, Floats x) { _mm256_store_ps(tile.offset[group] + quarter * kLanes, x); }
  // 16 columns from 16 * piece
  void weights(int piece, const Ints w[4]) {
    for (int k = 0; k < 4; k++) store(tile.w[4 * piece + k][quarter], w[k]);
  }
  void finish(int) {}
};

// Integer products of one group: p[n][r] += w[r] . q[n]
template <TileKind kKind, int kTokens, int kRegisters>
inline void multiply_group(const uint8_t* w, const int8_t* const q[], Ints p[][kRegisters]) {
  constexpr int kRun = kKind.safe_additions(), kSteps = kKind.group_columns / 4;
#pragma GCC unroll 8
  for (int k = 0; k < kSteps; k += kRun) {
    Ints run[kTokens][kRegisters];
#pragma GCC unroll 8
    for (int i = 0; i < kRun; i++) {
      Ints x[kTokens];
      for (int n = 0; n < kTokens; n++) x[n] = dwords(load_dword(q[n] + 4 * (k + i)));
#pragma GCC unroll 4
      for (int r = 0; r < kRegisters; r++) {
        const Ints weights = load(w + (k + i) * kQuarters * 32 + 32 * r);
#pragma GCC unroll 4
        for (int n = 0; n < kTokens; n++) {
          const Ints product = multiply_four<kKind>(weights, x[n]);
          run[n][r] = i ? _mm256_add_epi16(run[n][r], product) : product;
          asm("" : "+x"(run[n][r]));  // else the additions are put off and every product spilled
        }
      }
    }
    for (int n = 0; n < kTokens; n++)
      for (int r = 0; r < kRegisters; r++)
        p[n][r] = _mm256_add_epi32(p[n][r], add_pairs(run[n][r]));
  }
}

// sum[n][r] += the products of part `part` for kRegisters * 8 rows from `first`
template <TileKind kKind, int kTokens, int kRegisters>
inline void multiply_part(const Tile& tile, int first, int part, const TokenBlock<kKind>* tokens,
                          Floats sum[][kRegisters]) {
  constexpr int kSteps = kKind.group_columns / 4;
  Floats total[kTokens][kRegisters];
  const auto group = [&](int j) __attribute__((always_inline)) {
    const int g = part * kKind.part_groups() + j;
    const int8_t* q[kTokens];
    Ints p[kTokens][kRegisters];
    for (int n = 0; n < kTokens; n++) {
      q[n] = tokens[n].q + g * kKind.group_columns;
      for (Ints& x : p[n]) x = tokens[n].begin(g);
    }
    multiply_group<kKind, kTokens, kRegisters>(tile.w[g * kSteps][first / kLanes], q, p);
    for (int n = 0; n < kTokens; n++)
      for (int r = 0; r < kRegisters; r++)
        add_group<kKind>(total[n][r], sum[n][r], p[n][r], j, g,
                         _mm256_load_ps(tile.scale[g] + first + r * kLanes),
                         _mm256_load_ps(tile.offset[g] + first + r * kLanes), tokens[n]);
  };
  group(0);
  if constexpr (kKind.part_groups() == 2) group(1);
  for (int n = 0; n < kTokens; n++)
    for (int r = 0; r < kRegisters; r++) add_part<kKind>(sum[n][r], total[n][r], part, tokens[n]);
}

// out[n][rows] += tile . token n, for kRegisters * 8 rows from `first`
template <TileKind kKind, int kTokens, int kRegisters>
inline void multiply_rows(const Tile& tile, int first, int num_parts,
                          const TokenBlock<kKind>* tokens, float* out, ReadAhead& ahead) {
  Floats sum[kTokens][kRegisters];
  for (int n = 0; n < kTokens; n++)
    for (int r = 0; r < kRegisters; r++)
      sum[n][r] = _mm256_load_ps(out + n * kTileRows + first + r * kLanes);
#pragma GCC unroll 1
  for (int part = 0; part < num_parts; part++) {
    multiply_part<kKind, kTokens, kRegisters>(tile, first, part, tokens, sum);
    ahead.advance();
  }
  for (int n = 0; n < kTokens; n++)
    for (int r = 0; r < kRegisters; r++)
      _mm256_store_ps(out + n * kTileRows + first + r * kLanes, sum[n][r]);
}

// out[n][32] += tile . block `block` of token n, over the first `num_parts` parts
template <TileKind kKind, int kTokens>
[[gnu::noinline]] void multiply(const Tile& tile, int num_parts, const void* const* tokens,
                                int block, float* out, ReadAhead& ahead) {
  constexpr int kRegisters = kTokens == 1 ? 4 : 2;
  TokenBlock<kKind> blocks[kTokens];
  for (int n = 0; n < kTokens; n++) blocks[n].set(static_cast<const Activation*>(tokens[n])[block]);
  for (int first = 0; first < kTileRows; first += kRegisters * kLanes)
    multiply_rows<kKind, kTokens, kRegisters>(tile, first, num_parts, blocks, out, ahead);
}

}  // namespace
}  // namespace sharpi::avx2
