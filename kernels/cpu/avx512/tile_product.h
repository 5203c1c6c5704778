// The product of one call: 32 rows, unpacked 256 columns at a time, meet all tokens.
//
// A type is described by an Unpack: kKind, kBlockColumns, kBlockBytes and
//   static void unpack(Rows blocks, int num_groups, Tile&, int half): 16 rows of blocks into half a
//   tile.
#pragma once
#include <algorithm>

#include "few_tokens.h"
#include "tile.h"

namespace sharpi::avx512 {

constexpr size_t kMaxColumnBytes = 272;  // of a row's 256 columns: Q8_0

// Fetches rows this thread was not told about beforehand: 32 streams read at once would be slow.
inline void prefetch_start(const Product& p) {
  static thread_local const uint8_t* announced = nullptr;
  if (p.rows != announced) {
    Prefetch own = prefetch(p.rows, p.num_rows * p.row_bytes, 1);
    own.advance();
  }
  announced = p.next;
}

// Never inlined: among other code, addresses spill and it is slower by a third.
template <class Unpack>
[[gnu::noinline]] void unpack_tile(Rows rows, int num_groups, Tile& tile) {
  for (int half = 0; half < kHalves; half++) {
    TileSink sink{tile, half};
    Unpack::unpack(rows.from(half * kLanes), num_groups, sink);
  }
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

// 32 rows of 256 columns against all tokens.
template <class Unpack>
void multiply_rows(Rows rows, int num_groups, const Product& p, int block, Prefetch& ahead) {
  constexpr decltype(&multiply_few<Unpack, 1>) kFew[kFewTokens] = {
      multiply_few<Unpack, 1>, multiply_few<Unpack, 2>, multiply_few<Unpack, 3>,
      multiply_few<Unpack, 4>};
  constexpr TileKind kKind = Unpack::kKind;
  constexpr decltype(&multiply_tile<kKind, 1>) kSizes[kTokensAtOnce] = {
      multiply_tile<kKind, 1>, multiply_tile<kKind, 2>, multiply_tile<kKind, 3>,
      multiply_tile<kKind, 4>, multiply_tile<kKind, 5>, multiply_tile<kKind, 6>};
  if (p.num_tokens <= kFewTokens)
    return kFew[p.num_tokens - 1](rows, num_groups, p.tokens, block, p.out, ahead);
  Tile tile;
  unpack_tile<Unpack>(rows, num_groups, tile);
  over_tokens(p.num_tokens, [&](int from, int count) {
    kSizes[count - 1](tile, num_groups, p.tokens + from, block, p.out + from * kTileRows, ahead);
  });
}

template <class Unpack>
void tile_product(const Product& p) {
  constexpr TileKind kKind = Unpack::kKind;
  constexpr int kBlockGroups = 256 / kKind.group_columns;
  constexpr size_t kBytes = 256 / Unpack::kBlockColumns * Unpack::kBlockBytes;  // of 256 columns
  static_assert(kBytes <= kMaxColumnBytes);
  const int groups = p.num_columns / kKind.group_columns;
  prefetch_start(p);
  Prefetch ahead = prefetch(p.next, p.num_rows * p.row_bytes, groups * count_calls(p.num_tokens));
  std::fill_n(p.out, size_t(p.num_tokens) * kTileRows, 0.f);
  PaddedRows padded;
  for (int block = 0, left = groups; left > 0; block++, left -= kBlockGroups) {
    const int num_groups = std::min(left, kBlockGroups);
    const Rows rows = p.num_rows == kTileRows
                          ? Rows{p.rows + block * kBytes, p.row_bytes}
                          : padded.fill(p, block * kBytes, kBytes * num_groups / kBlockGroups);
    multiply_rows<Unpack>(rows, num_groups, p, block, ahead);
  }
}

}  // namespace sharpi::avx512
