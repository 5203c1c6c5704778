// Any type by its plain decode, 16 rows at a time: where there is no faster way.
#pragma once
#include "../block_decode.h"
#include "tile.h"
#include "transpose.h"

namespace sharpi::avx512 {
namespace {

template <QuantType kType, int kValues, int kBytes>
struct UnpackDecoded {
  static constexpr TileKind kKind{16, false, 128};
  static constexpr int kBlockColumns = kValues, kBlockBytes = kBytes;

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int num_parts, Out& out) {
    RowBlock rows[kLanes];
    for (int r = 0; r < kLanes; r++) decode_row_block(kType, blocks.at(r), 32 * num_parts, rows[r]);
    for (int g = 0; g < 2 * num_parts; g++) {
      alignas(64) float scales[kLanes];
      for (int r = 0; r < kLanes; r++) scales[r] = rows[r].scale[g];
      out.scale(g, _mm512_load_ps(scales));
    }
    const Rows values{reinterpret_cast<const uint8_t*>(rows[0].q), sizeof(RowBlock)};
    for (int part = 0; part < num_parts; part++) {
      Ints w[8];
      transpose32(values + 32 * part, w);
      for (int k = 0; k < 8; k++) w[k] = _mm512_xor_si512(w[k], bytes(128));
      out.weights(part, w);
    }
  }
};

}  // namespace
}  // namespace sharpi::avx512
