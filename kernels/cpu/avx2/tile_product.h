// The product of one call: 32 rows, unpacked 256 columns at a time, meet all tokens.
//
// A type is described by an Unpack: kKind, kBlockColumns, kBlockBytes and
//   static void unpack(Rows blocks, int num_parts, Tile&, int part): 8 rows of blocks into a
//   quarter of a tile.
#pragma once
#include <algorithm>

#include "tile.h"
#include "transpose.h"

namespace sharpi::avx2 {

constexpr size_t kMaxColumnBytes = 272;  // of a row's 256 columns: Q8_0

// All tokens.
template <TileKind kKind>
void multiply_all(const Product& p, const Tile& tile, int num_parts, int block, ReadAhead& ahead) {
  constexpr decltype(&multiply<kKind, 1>) kSizes[kTokensAtOnce] = {
      multiply<kKind, 1>, multiply<kKind, 2>, multiply<kKind, 3>, multiply<kKind, 4>};
  over_tokens(p.num_tokens, kTokensAtOnce, [&](int from, int count) {
    kSizes[count - 1](tile, num_parts, p.tokens + from, block, p.out + from * kTileRows, ahead);
  });
}

// Stands in for a tile with fewer than 32 rows: its blocks of 256 columns, the last row repeated.
struct PaddedRows {
  uint8_t bytes[kTileRows][kMaxColumnBytes];

  Rows fill(const Product& p, size_t offset, size_t num_bytes) {
    for (int r = 0; r < kTileRows; r++)
      memcpy(bytes[r], p.rows + std::min(r, p.num_rows - 1) * p.row_bytes + offset, num_bytes);
    return {bytes[0], kMaxColumnBytes};
  }
};

template <class Unpack>
void tile_product(const Product& p) {
  constexpr TileKind kKind = Unpack::kKind;
  constexpr size_t kBytes = 256 / Unpack::kBlockColumns * Unpack::kBlockBytes;  // of 256 columns
  static_assert(kBytes <= kMaxColumnBytes);
  const int parts = p.num_columns / 32;
  const int steps = parts * count_calls(p.num_tokens, kTokensAtOnce);
  read_unannounced(p);
  ReadAhead ahead = read_ahead(p.next, p.num_rows * p.row_bytes, steps);
  std::fill_n(p.out, size_t(p.num_tokens) * kTileRows, 0.f);
  Tile tile;
  PaddedRows padded;
  for (int block = 0, left = parts; left > 0; block++, left -= 8) {
    const int num_parts = std::min(left, 8);
    const Rows rows = p.num_rows == kTileRows
                          ? Rows{p.rows + block * kBytes, p.row_bytes}
                          : padded.fill(p, block * kBytes, kBytes * num_parts / 8);
    for (int part = 0; part < kParts; part++)
      Unpack::unpack(rows.from(part * kLanes), num_parts, tile, part);
    multiply_all<kKind>(p, tile, num_parts, block, ahead);
  }
}

}  // namespace sharpi::avx2
