// The product of one call: 32 rows, unpacked 256 columns at a time, times all tokens.
//
// One token or many, sums are made in one order, so that a token's result has the same bits. A type
// is an Unpack with kKind, kBlockColumns, kBlockBytes and
//   static void unpack(Rows blocks, int num_parts, Out&): 16 rows x 32 * num_parts columns
#pragma once
#include <algorithm>
#include <utility>

#include "direct_product.h"
#include "tile.h"
#include "transpose.h"

namespace sharpi::avx512 {
namespace {

constexpr size_t kMaxColumnBytes = 272;  // of a row's 256 columns: Q8_0

// Never inlined: within other code, addresses spill and it is a third slower.
template <class Unpack>
[[gnu::noinline]] void unpack_tile(Rows rows, int num_parts, Tile& tile, ReadAhead& ahead) {
  for (int half = 0; half < kHalves; half++) {
    TileHalf out{tile, half, ahead};
    Unpack::unpack(rows.from(half * kLanes), num_parts, out);
  }
}

// Pads a tile of fewer than 32 rows: its blocks of 256 columns, with the last row repeated.
struct PaddedRows {
  uint8_t bytes[kTileRows][kMaxColumnBytes];

  Rows fill(const Product& p, size_t offset, size_t num_bytes) {
    for (int r = 0; r < kTileRows; r++)
      memcpy(bytes[r], p.rows + std::min(r, p.num_rows - 1) * p.row_bytes + offset, num_bytes);
    return {bytes[0], kMaxColumnBytes};
  }
};

// Multiplies a tile with all tokens. kIndices: from 0 up to the tokens that are taken at once.
template <TileKind kKind, int... kIndices>
void multiply_all(const Tile& tile, int num_parts, const Product& p, int block, ReadAhead& ahead,
                  std::integer_sequence<int, kIndices...>) {
  constexpr decltype(&multiply_tile<kKind, 1>) kSizes[] = {multiply_tile<kKind, kIndices + 1>...};
  over_tokens(p.num_tokens, sizeof...(kIndices), [&](int from, int count) {
    kSizes[count - 1](tile, num_parts, p.tokens + from, block, p.out + from * kTileRows, ahead);
  });
}

// Multiplies many tokens: each tile is unpacked once for all of them.
template <class Unpack>
void many_tokens(const Product& p, int parts) {
  constexpr int kAtOnce = tokens_at_once(Unpack::kKind);
  constexpr size_t kBytes = bytes_of_256<Unpack>();
  std::fill_n(p.out, size_t(p.num_tokens) * kTileRows, 0.f);
  ReadAhead ahead = read_ahead(p.next, p.num_rows * p.row_bytes,
                               parts * (kHalves + count_calls(p.num_tokens, kAtOnce)));
  Tile tile;
  PaddedRows padded;
  for (int block = 0, left = parts; left > 0; block++, left -= kParts) {
    const int num_parts = std::min(left, kParts);
    const Rows rows = p.num_rows == kTileRows
                          ? Rows{p.rows + block * kBytes, p.row_bytes}
                          : padded.fill(p, block * kBytes, kBytes * num_parts / kParts);
    unpack_tile<Unpack>(rows, num_parts, tile, ahead);
    multiply_all<Unpack::kKind>(tile, num_parts, p, block, ahead,
                                std::make_integer_sequence<int, kAtOnce>());
  }
}

template <class Unpack>
void tile_product(const Product& p) {
  static_assert(bytes_of_256<Unpack>() <= kMaxColumnBytes);
  static constexpr FewTokensKernels<Rows> kKernels = {
      {multiply_direct<Unpack, 1, Level::L1>, multiply_direct<Unpack, 1, Level::L2>},
      {multiply_direct<Unpack, 2, Level::L1>, multiply_direct<Unpack, 3, Level::L1>}};
  begin_reading(p);
  if (meets_directly(p)) few_tokens(p, kKernels);
  else many_tokens<Unpack>(p, p.num_columns / 32);
}

}  // namespace
}  // namespace sharpi::avx512
