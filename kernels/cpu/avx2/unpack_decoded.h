// Any type by its plain decode, 8 rows into a quarter of a tile: where there is no faster way.
#pragma once
#include "../block_decode.h"
#include "tile.h"
#include "transpose.h"

namespace sharpi::avx2 {

template <QuantType kType, int kValues, int kBytes>
struct UnpackDecoded {
  static constexpr TileKind kKind{16, false, 0, 128};
  static constexpr int kBlockColumns = kValues, kBlockBytes = kBytes;

  static void unpack(Rows blocks, int num_parts, Tile& tile, int part) {
    RowBlock rows[kLanes];
    for (int r = 0; r < kLanes; r++) {
      decode_row_block(kType, blocks.at(r), 32 * num_parts, rows[r]);
      for (int g = 0; g < kMaxGroups; g++) tile.scale[g][part * kLanes + r] = rows[r].scale[g];
    }
    const Rows values{reinterpret_cast<const uint8_t*>(rows[0].q), sizeof(RowBlock)};
    for (int piece = 0; piece < 2 * num_parts; piece++) {
      Ints x[4];
      transpose16(values + 16 * piece, x);
      for (int k = 0; k < 4; k++) store(tile.w[4 * piece + k][part], x[k]);
    }
  }
};

}  // namespace sharpi::avx2
