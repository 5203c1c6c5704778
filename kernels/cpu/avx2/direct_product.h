// Multiplies weights with few tokens as they are unpacked; no tile is written and read back.
//
// The floats are added in the same order as a tile's, so the bits are the same. What is read next
// is fetched meanwhile, line by line between the products.
#pragma once
#include "direct_quarter.h"

namespace sharpi::avx2 {
namespace {

// Returns the kind for few tokens. Types that are multiplied row by row have one of their own, as
// they may need no bias there.
template <class Unpack>
constexpr bool meets_rows() {
  return requires { Unpack::kKindOfRows; };
}
template <class Unpack>
constexpr TileKind direct_kind() {
  if constexpr (meets_rows<Unpack>()) return Unpack::kKindOfRows;
  else if constexpr (requires { Unpack::kKindInPlace; }) return Unpack::kKindInPlace;
  else return Unpack::kKind;
}

// Returns the number of parts that are begun before the first of them is finished.
template <class Unpack>
constexpr int parts_at_once() {
  if constexpr (requires { Unpack::kPartsAtOnce; }) return Unpack::kPartsAtOnce;
  else return kParts;
}

constexpr int kFetchBehind = 0;  // computing takes longer than waiting here

// One token is multiplied with rows in pairs if the type has a `Direct` layout. With more tokens
// it costs less to turn the weights once.
template <class Unpack, int kTokens>
struct DirectLayout {
  using Type = TurnedRows;
};
template <class Unpack>
  requires requires { typename Unpack::Direct; }
struct DirectLayout<Unpack, 1> {
  using Type = typename Unpack::Direct;
};

// Tells whether gcc is to order instructions before it chooses registers. Most kernels of one token
// with rows in pairs, and Q3_K's, are up to a tenth faster so; the others are slower. Sums of
// integers stay in the order that they are written in: with another, Q3_K's is 3 % slower.
template <class Unpack, int kTokens>
constexpr bool orders_early() {
  if constexpr (kTokens > 1 || kTwoRegisters) return false;
  else if constexpr (requires { Unpack::kOrdersEarly; }) return Unpack::kOrdersEarly;
  else return requires { typename Unpack::Direct; };
}
#if defined(__GNUC__) && !defined(__clang__)
#define SHARPI_ORDERED_EARLY gnu::optimize("schedule-insns", "sched-pressure", "no-tree-reassoc")
#else
#define SHARPI_ORDERED_EARLY gnu::hot
#endif

// Computes out[n][32] = 32 rows . token n, 8 rows at a time; prefetches from `next` meanwhile.
template <class Unpack, int kTokens, Level kAgain>
[[gnu::always_inline]] inline void multiply_quarters(Rows rows, int parts,
                                                     const void* const* tokens, float* out,
                                                     const uint8_t* next) {
  constexpr int kBytes = bytes_of_256<Unpack>();
  constexpr TileKind kKind = direct_kind<Unpack>();
  using Layout = typename DirectLayout<Unpack, kTokens>::Type;
  using Quarter = DirectQuarter<kKind, Layout, kTokens, parts_at_once<Unpack>(),
                                Fetch<kBytes * kLanes, kAgain, kFetchBehind>>;
  const uint8_t* const tile_after = next;
  for (int quarter = 0; quarter < kQuarters; quarter++) {
    Rows blocks = rows.from(quarter * kLanes);
    const uint8_t* again = half_a_tile_on(rows.start, tile_after, rows.stride, quarter * kLanes);
    Floats sums[kTokens];
    for (Floats& sum : sums) sum = zero_floats();
    for (int block = 0, left = parts; left > 0; block++, left -= 8, blocks = blocks + kBytes) {
      TokenBlock<kKind> token[kTokens];
      for (int n = 0; n < kTokens; n++)
        token[n].set(static_cast<const Activation*>(tokens[n])[block]);
      Quarter out(token, sums, {next, again});
      if constexpr (kKind.whole_scales) out.begin();
      if constexpr (meets_rows<Unpack>()) Unpack::multiply(blocks, out);
      else Unpack::unpack(blocks, Unpack::kBlockColumns == 256 || left > 8 ? 8 : left, out);
      if constexpr (kKind.whole_scales) out.end();
      next += kBytes * kLanes, again += kBytes * kLanes;
    }
    for (int n = 0; n < kTokens; n++) store_floats(out + n * kTileRows + quarter * kLanes, sums[n]);
  }
}

template <class Unpack, int kTokens, Level kAgain>
  requires(!orders_early<Unpack, kTokens>())
[[gnu::noinline]] void multiply_direct(Rows rows, int parts, const void* const* tokens, float* out,
                                       const uint8_t* next) {
  multiply_quarters<Unpack, kTokens, kAgain>(rows, parts, tokens, out, next);
}
template <class Unpack, int kTokens, Level kAgain>
  requires(orders_early<Unpack, kTokens>())
[[gnu::noinline, SHARPI_ORDERED_EARLY]] void multiply_direct(Rows rows, int parts,
                                                             const void* const* tokens, float* out,
                                                             const uint8_t* next) {
  multiply_quarters<Unpack, kTokens, kAgain>(rows, parts, tokens, out, next);
}

}  // namespace
}  // namespace sharpi::avx2
