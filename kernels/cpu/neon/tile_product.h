// The product of one call: 32 rows, decoded 256 columns at a time, times all tokens.
#pragma once
#include <algorithm>

#include "tile.h"

namespace sharpi::neon {
namespace {

template <class Dot>
void multiply_all(const Product& p, const Tile& tile, int num_groups, int block, ReadAhead& ahead) {
  constexpr decltype(&multiply<Dot, 1>) kSizes[kTokensAtOnce] = {
      multiply<Dot, 1>, multiply<Dot, 2>, multiply<Dot, 3>, multiply<Dot, 4>};
  over_tokens(p.num_tokens, kTokensAtOnce, [&](int from, int count) {
    kSizes[count - 1](tile, num_groups, p.tokens + from, block, p.out + from * kTileRows, ahead);
  });
}

// Missing rows keep the tile's old content: their results are not used.
template <class Dot, QuantType kType>
void tile_product(const Product& p) {
  const size_t step = 256 / block_values(kType) * block_bytes(kType);
  const int groups = p.num_columns / 16;
  const int steps =
      groups * kTileRows / (kRegisters * kLanes) * count_calls(p.num_tokens, kTokensAtOnce);
  begin_reading(p);
  ReadAhead ahead = read_ahead(p.next, p.num_rows * p.row_bytes, steps);
  std::fill_n(p.out, size_t(p.num_tokens) * kTileRows, 0.f);
  Tile tile;
  if (p.num_rows < kTileRows) memset(&tile, 0, sizeof tile);
  for (int block = 0, left = groups; left > 0; block++, left -= kGroups) {
    const int num_groups = std::min(left, kGroups);
    for (int r = 0; r < p.num_rows; r++) {
      RowBlock row;
      decode_row_block(kType, p.rows + r * p.row_bytes + block * step, 16 * num_groups, row);
      tile.set_row(r, row);
    }
    multiply_all<Dot>(p, tile, num_groups, block, ahead);
  }
}

}  // namespace
}  // namespace sharpi::neon
