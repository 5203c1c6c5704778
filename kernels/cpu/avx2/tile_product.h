// The product of one call: 32 rows, unpacked 256 columns at a time, times all tokens.
//
// One token or many, sums are made in one order, so that a token's result has the same bits. A type
// is an Unpack with kKind, kBlockColumns, kBlockBytes and
//   static void unpack(Rows blocks, int num_parts, Out&): 8 rows x 32 * num_parts columns
#pragma once
#include <algorithm>

#include "direct_product.h"
#include "tile_of_tokens.h"
#include "transpose.h"

namespace sharpi::avx2 {
namespace {

constexpr size_t kMaxColumnBytes = 272;  // of a row's 256 columns: Q8_0
constexpr int kManyTokens = 12;          // that make up for what complements cost a tile

// Multiplies a tile with all tokens.
template <TileKind kKind>
void multiply_all(const Product& p, const Tile& tile, int num_parts, int block, ReadAhead& ahead) {
  constexpr decltype(&multiply<kKind, 1>) kSizes[kTokensAtOnce] = {
      multiply<kKind, 1>, multiply<kKind, 2>, multiply<kKind, 3>, multiply<kKind, 4>};
  over_tokens(p.num_tokens, kTokensAtOnce, [&](int from, int count) {
    kSizes[count - 1](tile, num_parts, p.tokens + from, block, p.out + from * kTileRows, ahead);
  });
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

template <class Unpack, TileKind kKind>
[[gnu::noinline]] void unpack_tile(Rows rows, int num_parts, Tile& tile) {
  for (int quarter = 0; quarter < kQuarters; quarter++) {
    TileQuarter<kKind> out{tile, quarter};
    Unpack::unpack(rows.from(quarter * kLanes), num_parts, out);
  }
}

// Multiplies many tokens: each tile is unpacked once for all of them.
template <class Unpack, TileKind kKind>
void many_tokens(const Product& p, int parts) {
  constexpr size_t kBytes = bytes_of_256<Unpack>();
  const int steps = parts * count_calls(p.num_tokens, kTokensAtOnce);
  ReadAhead ahead = read_ahead(p.next, p.num_rows * p.row_bytes, steps);
  std::fill_n(p.out, size_t(p.num_tokens) * kTileRows, 0.f);
  Tile tile;
  PaddedRows padded;
  for (int block = 0, left = parts; left > 0; block++, left -= 8) {
    const int num_parts = std::min(left, 8);
    const Rows rows = p.num_rows == kTileRows
                          ? Rows{p.rows + block * kBytes, p.row_bytes}
                          : padded.fill(p, block * kBytes, kBytes * num_parts / 8);
    unpack_tile<Unpack, kKind>(rows, num_parts, tile);
    multiply_all<kKind>(p, tile, num_parts, block, ahead);
  }
}

// Returns how many tokens are multiplied without a tile: one where a block of 256 is unpacked in
// one line of code, as the sums of more do not fit pairs of registers.
template <class Unpack>
constexpr int direct_tokens() {
  constexpr bool kOneLine = Unpack::kBlockColumns == 256 && requires { typename Unpack::Direct; };
  return kTwoRegisters && kOneLine ? 1 : kDirectTokens;
}

template <class Unpack>
void tile_product(const Product& p) {
  static_assert(bytes_of_256<Unpack>() <= kMaxColumnBytes);
  static constexpr FewTokensKernels<Rows> kKernels = {
      {multiply_direct<Unpack, 1, Level::L1>, multiply_direct<Unpack, 1, Level::L2>},
      {multiply_direct<Unpack, 2, Level::L1>, multiply_direct<Unpack, 3, Level::L1>}};
  begin_reading(p);
  if (meets_directly(p) && p.num_tokens <= direct_tokens<Unpack>()) few_tokens(p, kKernels);
  else if (p.num_tokens < kManyTokens) many_tokens<Unpack, Unpack::kKind>(p, p.num_columns / 32);
  else many_tokens<Unpack, kind_of_many(Unpack::kKind)>(p, p.num_columns / 32);
}

}  // namespace
}  // namespace sharpi::avx2
