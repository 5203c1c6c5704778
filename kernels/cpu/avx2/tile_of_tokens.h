// Multiplies a tile with a few of many tokens, as the type's kind of scales wants it.
#pragma once
#include "block_total.h"
#include "tile.h"

namespace sharpi::avx2 {
namespace {

// Adds the products of part `part` to total[n][r], for kRegisters * 8 rows from `first` on; scales
// are whole.
template <TileKind kKind, int kTokens, int kRegisters>
inline void multiply_part(const Tile& tile, int first, int part, const TokenBlock<kKind>* tokens,
                          BlockTotal total[][kRegisters]) {
  constexpr int kSteps = kKind.group_columns / 4, kGroups = kKind.part_groups();
  Ints p[kTokens][kRegisters];
  for (auto& row : p)
    for (Ints& x : row) x = zero();
  const auto group = [&](int g) __attribute__((always_inline)) {
    multiply_group<kKind, kTokens, kRegisters>(tile.w[g * kSteps][first / kLanes],
                                               tile.scale[g] + first, g, tokens, p);
  };
  group(part * kGroups);
  if constexpr (kGroups == 2) group(part * kGroups + 1);
  for (int n = 0; n < kTokens; n++)
    for (int r = 0; r < kRegisters; r++) total[n][r].add_products(p[n][r], part, tokens[n]);
}

// Does the same with dot products; integers have at most 24 bits, so floats have the same sums.
template <TileKind kKind, int kTokens, int kRegisters>
inline void dot_part(const Tile& tile, int first, int part, const TokenBlock<kKind>* tokens,
                     BlockTotal total[][kRegisters]) {
  constexpr int kSteps = kKind.group_columns / 4, kGroups = kKind.part_groups();
  Floats sum[kTokens][kRegisters];
  const auto group = [&](int j) __attribute__((always_inline)) {
    const int g = part * kGroups + j;
    const int8_t* q[kTokens];
    Ints p[kTokens][kRegisters];
    for (int n = 0; n < kTokens; n++) {
      q[n] = tokens[n].q + g * kKind.group_columns;
      for (Ints& x : p[n]) x = tokens[n].begin(g);
    }
    dot_group<kKind, kTokens, kRegisters>(tile.w[g * kSteps][first / kLanes], q, p);
    for (int r = 0; r < kRegisters; r++) {
      const Floats scale = word_scale(load(tile.scale[g] + first + r * kLanes));
      for (int n = 0; n < kTokens; n++) add_scaled(sum[n][r], to_float(p[n][r]), scale, j);
    }
  };
  group(0);
  if constexpr (kGroups == 2) group(1);
  for (int n = 0; n < kTokens; n++)
    for (int r = 0; r < kRegisters; r++)
      total[n][r].add_scaled_products(sum[n][r], part, tokens[n]);
}

template <TileKind kKind, int kTokens, int kRegisters>
inline void add_mins(const Tile& tile, int first, const TokenBlock<kKind>* tokens,
                     BlockTotal total[][kRegisters]) {
  for (int part = 0; part < kParts; part++)
    for (int r = 0; r < kRegisters; r++) {
      const Floats mins = load_floats(tile.offset[part] + first + r * kLanes);
      for (int n = 0; n < kTokens; n++) total[n][r].add_mins(mins, part, tokens[n]);
    }
}

// Computes out[n][rows] += tile . token n for kRegisters * 8 rows from `first` on, whole scales.
template <TileKind kKind, int kTokens, int kRegisters>
inline void multiply_whole_rows(const Tile& tile, int first, const TokenBlock<kKind>* tokens,
                                float* out, ReadAhead& ahead) {
  BlockTotal total[kTokens][kRegisters];
  for (int n = 0; n < kTokens; n++)
    for (BlockTotal& x : total[n]) x.begin(tokens[n]);
#pragma GCC unroll 1
  for (int part = 0; part < kParts; part++) {
    if constexpr (kHasDot) dot_part<kKind, kTokens, kRegisters>(tile, first, part, tokens, total);
    else multiply_part<kKind, kTokens, kRegisters>(tile, first, part, tokens, total);
    ahead.advance();
  }
  if constexpr (kKind.has_offsets) add_mins<kKind, kTokens, kRegisters>(tile, first, tokens, total);
  for (int n = 0; n < kTokens; n++)
    for (int r = 0; r < kRegisters; r++) {
      const int row = first + r * kLanes;
      float* at = out + n * kTileRows + row;
      const Floats d = load_floats(tile.d + row), minus_dmin = load_floats(tile.minus_dmin + row);
      store_floats(at, total[n][r].template added_to<kKind>(load_floats(at), d, minus_dmin));
    }
}

// Computes out[n][32] += tile . block `block` of token n, over the first `num_parts` parts.
template <TileKind kKind, int kTokens>
[[gnu::noinline]] void multiply(const Tile& tile, int num_parts, const void* const* tokens,
                                int block, float* out, ReadAhead& ahead) {
  constexpr int kRegisters = registers_at_once(kTokens);
  TokenBlock<kKind> blocks[kTokens];
  for (int n = 0; n < kTokens; n++) blocks[n].set(static_cast<const Activation*>(tokens[n])[block]);
  for (int first = 0; first < kTileRows; first += kRegisters * kLanes)
    if constexpr (kKind.whole_scales)
      multiply_whole_rows<kKind, kTokens, kRegisters>(tile, first, blocks, out, ahead);
    else multiply_rows<kKind, kTokens, kRegisters>(tile, first, num_parts, blocks, out, ahead);
}

}  // namespace
}  // namespace sharpi::avx2
