// A few tokens meet the weights in the registers that unpacking leaves: what decode is made of.
//
// The sums are those of a tile (tile.h), in the same order, so the bits are the same; what falls
// away is writing a tile and reading it back. What is read next is fetched meanwhile, line by line
// between the products.
#pragma once
#include "runtime/fetch.h"
#include "token_block.h"
#include "transpose.h"

namespace sharpi::avx512 {
namespace {

// sums += w . the same four activations for all rows, which the instruction broadcasts itself
[[gnu::always_inline]] inline void add_products(Ints& sums, Ints w, const int8_t* activations) {
  const int& four = *reinterpret_cast<const int*>(activations);
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sums) : "v"(w), "m"(four));
}

// 16 rows of 256 columns against kTokens; takes unpacked weights in the order of their columns.
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

  // 32 columns from 32 * part; scale() and offset() of their groups came before
  [[gnu::always_inline]] void weights(int part, const Ints w[8]) {
    constexpr int kGroups = kKind.part_groups(), kSteps = 8 / kGroups;
#pragma GCC unroll 3
    for (int n = 0; n < kTokens; n++) {
      Floats sum;
#pragma GCC unroll 2
      for (int j = 0; j < kGroups; j++) {
        const int group = part * kGroups + j;
        Ints even = tokens[n].begin(group), odd = zero();  // two chains: one would wait for itself
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

// out[n][32] = 32 rows . token n: 16 rows after the other 16, so that they are in L1 together.
// `next`: what is fetched.
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
        asm("" : "+m"(token[n]));  // else its sums stay in registers, and each use is a shuffle
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
