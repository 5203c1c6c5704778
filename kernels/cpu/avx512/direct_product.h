// Multiplies a few tokens with weights that are still in the registers in which they were unpacked:
// the inner loop of decode.
//
// The sums are those of a tile (tile.h), in the same order, so the bits are the same; but no tile
// is written and read back. The weights that follow are prefetched meanwhile, line by line between
// the products.
#pragma once
#include "runtime/fetch.h"
#include "token_block.h"
#include "transpose.h"

namespace sharpi::avx512 {
namespace {

// Computes sums += w . activations, the same four activations for all rows; the instruction
// broadcasts them by itself.
[[gnu::always_inline]] inline void add_products(Ints& sums, Ints w, const int8_t* activations) {
  const int& four = *reinterpret_cast<const int*>(activations);
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sums) : "v"(w), "m"(four));
}

// Accumulates 16 rows of 256 columns against kTokens; takes unpacked weights in column order.
template <TileKind kKind, int kTokens, class Fetch>
struct DirectHalf {
  const TokenBlock<kKind>* tokens;
  Floats* sums;  // (kTokens)
  Fetch fetch;
  Floats scales[kMaxGroups], offsets[kMaxGroups];

  DirectHalf(const TokenBlock<kKind>* tokens, Floats* sums, Fetch fetch)
      : tokens(tokens), sums(sums), fetch(fetch) {}

  void scale(int group, Floats x) { scales[group] = x; }
  void offset(int group, Floats x) { offsets[group] = x; }

  // Takes 32 columns from 32 * part on; scale() and offset() of their groups were called before.
  [[gnu::always_inline]] void weights(int part, const Ints w[8]) {
    constexpr int kGroups = kKind.part_groups(), kSteps = 8 / kGroups;
#pragma GCC unroll 3
    for (int n = 0; n < kTokens; n++) {
      Floats sum;
#pragma GCC unroll 2
      for (int j = 0; j < kGroups; j++) {
        const int group = part * kGroups + j;
        // two chains, since one would wait for itself
        Ints even = tokens[n].begin(group), odd = zero();
#pragma GCC unroll 4
        for (int k = j * kSteps; k < (j + 1) * kSteps; k += 2) {
          add_products(even, w[k], tokens[n].q + 32 * part + 4 * k);
          if (n == 0) fetch.share(k / 2, 4, even);
          add_products(odd, w[k + 1], tokens[n].q + 32 * part + 4 * k + 4);
        }
        add_group<kKind>(sum, sums[n], _mm512_add_epi32(even, odd), j, group, scales[group],
                         offsets[group], tokens[n]);
      }
      add_part<kKind>(sums[n], sum, part, tokens[n]);
    }
    fetch.advance();
  }
};

constexpr int kFetchBehind = 2304;  // bytes; 320 to 4608 were as good, 9216 was not

// Computes out[n][32] = 32 rows . token n, one half of 16 rows after the other, so that the blocks
// of a half are in L1 together.
// `next`: the memory to prefetch.
template <class Unpack, int kTokens, Level kAgain>
[[gnu::noinline]] void multiply_direct(Rows rows, int parts, const void* const* tokens, float* out,
                                       const uint8_t* next) {
  constexpr int kBytes = bytes_of_256<Unpack>();
  using Half = DirectHalf<Unpack::kKind, kTokens, Fetch<2 * kBytes, kAgain, kFetchBehind>>;
  const uint8_t* const tile_after = next;
  for (int h = 0; h < kHalves; h++) {
    Rows blocks = rows.from(h * kLanes);
    const uint8_t* again = half_a_tile_on(rows.first, tile_after, rows.stride, h * kLanes);
    Floats sums[kTokens];
    for (int n = 0; n < kTokens; n++) sums[n] = _mm512_setzero_ps();
    for (int block = 0, left = parts; left > 0; block++, left -= kParts, blocks = blocks + kBytes) {
      TokenBlock<Unpack::kKind> token[kTokens];
      for (int n = 0; n < kTokens; n++) {
        token[n].set(tokens[n], block);
        // otherwise its sums stay in registers, and each use costs a shuffle
        asm("" : "+m"(token[n]));
      }
      Half half(token, sums, {next, again});
      Unpack::unpack(blocks, Unpack::kBlockColumns == 256 || left > kParts ? kParts : left, half);
      next = half.fetch.next, again = half.fetch.again;
    }
    for (int n = 0; n < kTokens; n++) _mm512_store_ps(out + n * kTileRows + h * kLanes, sums[n]);
  }
}

}  // namespace
}  // namespace sharpi::avx512
