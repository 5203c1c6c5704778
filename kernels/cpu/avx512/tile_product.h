// The product of one call: 32 rows, unpacked 256 columns at a time, meet all tokens.
//
// A type is described by an Unpack: kKind, kBlockColumns, kBlockBytes and
//   static void unpack(Rows blocks, int num_parts, Sink&): 16 rows x 32 * num_parts columns, to a
//   TileSink or TokenSink
#pragma once
#include <algorithm>
#include <utility>

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
[[gnu::noinline]] void unpack_tile(Rows rows, int num_parts, Tile& tile) {
  for (int half = 0; half < kHalves; half++) {
    TileSink sink{tile, half};
    Unpack::unpack(rows.from(half * kLanes), num_parts, sink);
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

// 32 rows of 256 columns against all tokens. kIndices: 0 up to the tokens of a call.
template <class Unpack, int... kIndices>
void multiply_rows(Rows rows, int num_parts, const Product& p, int block, Prefetch& ahead,
                   std::integer_sequence<int, kIndices...>) {
  constexpr int kAtOnce = sizeof...(kIndices);
  if (p.num_tokens <= kFewTokens) {
    constexpr decltype(&multiply_few<Unpack, 1>) kFew[] = {
        multiply_few<Unpack, std::min(kIndices + 1, kFewTokens)>...};
    return kFew[p.num_tokens - 1](rows, num_parts, p.tokens, block, p.out, ahead);
  }
  constexpr decltype(&multiply_tile<Unpack::kKind, 1>) kMany[] = {
      multiply_tile<Unpack::kKind, kIndices + 1>...};
  Tile tile;
  unpack_tile<Unpack>(rows, num_parts, tile);
  over_tokens(p.num_tokens, kAtOnce, [&](int from, int count) {
    kMany[count - 1](tile, num_parts, p.tokens + from, block, p.out + from * kTileRows, ahead);
  });
}

template <class Unpack>
void tile_product(const Product& p) {
  constexpr int kAtOnce = tokens_at_once(Unpack::kKind);
  constexpr size_t kBytes = 256 / Unpack::kBlockColumns * Unpack::kBlockBytes;  // of 256 columns
  static_assert(kBytes <= kMaxColumnBytes);
  prefetch_start(p);
  const int parts = p.num_columns / 32;
  Prefetch ahead =
      prefetch(p.next, p.num_rows * p.row_bytes,
               p.num_tokens <= kFewTokens ? kHalves * ((parts + kParts - 1) / kParts)
                                          : parts * count_calls(p.num_tokens, kAtOnce));
  std::fill_n(p.out, size_t(p.num_tokens) * kTileRows, 0.f);
  PaddedRows padded;
  for (int block = 0, left = parts; left > 0; block++, left -= kParts) {
    const int num_parts = std::min(left, kParts);
    const Rows rows = p.num_rows == kTileRows
                          ? Rows{p.rows + block * kBytes, p.row_bytes}
                          : padded.fill(p, block * kBytes, kBytes * num_parts / kParts);
    multiply_rows<Unpack>(rows, num_parts, p, block, ahead,
                          std::make_integer_sequence<int, kAtOnce>());
  }
}

}  // namespace sharpi::avx512
