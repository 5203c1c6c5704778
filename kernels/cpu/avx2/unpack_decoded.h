// Types without an unpacking of their own: decoded one row at a time, then laid into the tile.
#pragma once
#include "../block_decode.h"
#include "tile.h"
#include "transpose.h"

namespace sharpi::avx2 {

template <QuantType kType, class Block, int kColumns>
struct UnpackDecoded {
  static constexpr TileKind kKind{16, true, 0, 128};
  static constexpr int kBlockColumns = kColumns, kBlockBytes = sizeof(Block);

  static void unpack(Rows blocks, int num_parts, Tile& tile, int part) {
    for (int r = 0; r < kLanes; r++) {
      RowBlock row;
      decode_row_block(kType, blocks.at(r), 32 * num_parts, row);
      for (int step = 0; step < 64; step++) memcpy(tile.w[step][part] + 4 * r, row.q + 4 * step, 4);
      for (int g = 0; g < kMaxGroups; g++) {
        tile.scale[g][part * kLanes + r] = row.scale[g];
        tile.offset[g][part * kLanes + r] = -row.min[g];
      }
    }
  }
};

}  // namespace sharpi::avx2
