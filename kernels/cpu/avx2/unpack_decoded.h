// Any type by its plain decode, 8 rows at a time: where there is no faster way.
#pragma once
#include "../block_decode.h"
#include "token_block.h"
#include "transpose.h"

namespace sharpi::avx2 {

template <QuantType kType, int kValues, int kBytes>
struct UnpackDecoded {
  static constexpr TileKind kKind{16, false, 0, 128};
  static constexpr int kBlockColumns = kValues, kBlockBytes = kBytes;

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int num_parts, Out& out) {
    RowBlock rows[kLanes];
    alignas(32) float scales[kMaxGroups][kLanes];
    for (int r = 0; r < kLanes; r++) {
      decode_row_block(kType, blocks.at(r), 32 * num_parts, rows[r]);
      for (int g = 0; g < kMaxGroups; g++) scales[g][r] = rows[r].scale[g];
    }
    for (int g = 0; g < kMaxGroups; g++) out.scale(g, _mm256_load_ps(scales[g]));
    const Rows values{reinterpret_cast<const uint8_t*>(rows[0].q), sizeof(RowBlock)};
    for (int piece = 0; piece < 2 * num_parts; piece++) {
      Ints x[4];
      transpose16(values + 16 * piece, x);
      out.weights(piece, x);
      if (piece % 2) out.finish(piece / 2);
    }
  }
};

}  // namespace sharpi::avx2
