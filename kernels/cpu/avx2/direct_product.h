// Few tokens meet the weights as these are unpacked: no tile is written and read back.
//
// The floats are added in the same order as a tile's, so the bits are the same. What is read next
// is fetched meanwhile, line by line between the products.
#pragma once
#include "runtime/fetch.h"
#include "token_block.h"
#include "transpose.h"

namespace sharpi::avx2 {
namespace {

// 16 columns of 8 rows with 16 values of a token, as int32.
template <TileKind kKind>
[[gnu::always_inline]] inline Ints multiply_piece(const Ints w[4], const int8_t* q) {
  constexpr int kRun = kKind.safe_additions() < 4 ? kKind.safe_additions() : 4;
  Ints sum;
#pragma GCC unroll 4
  for (int k = 0; k < 4; k += kRun) {
    Ints run;
#pragma GCC unroll 4
    for (int i = k; i < k + kRun; i++) {
      const Ints product = multiply_four<kKind>(w[i], dwords(load_dword(q + 4 * i)));
      run = i > k ? _mm256_add_epi16(run, product) : product;
    }
    sum = k ? _mm256_add_epi32(sum, add_pairs(run)) : add_pairs(run);
  }
  return sum;
}

// 8 rows of 256 columns against kTokens; takes unpacked weights in any order.
template <TileKind kKind, int kTokens, class Fetch>
struct DirectQuarter {
  const TokenBlock<kKind>* tokens;
  Floats* sums;  // (kTokens)
  Fetch fetch;
  Floats scales[kMaxGroups], offsets[kMaxGroups];
  Ints products[kTokens][kPieces];

  DirectQuarter(const TokenBlock<kKind>* tokens, Floats* sums, Fetch fetch)
      : tokens(tokens), sums(sums), fetch(fetch) {}

  void scale(int group, Floats x) { scales[group] = x; }
  void offset(int group, Floats x) { offsets[group] = x; }
  [[gnu::always_inline]] void weights(unsigned piece, const Ints w[4]) {
#pragma GCC unroll 3
    for (int n = 0; n < kTokens; n++) {
      Ints sum = multiply_piece<kKind>(w, tokens[n].q + 16 * piece);
      if (n == 0) fetch.share(piece % 2, 2, sum, piece / 2 * Fetch::kBytes);
      products[n][piece] = sum;
    }
  }
  // All of a part at once, row by row: row(r)(q) are its products with a token's values as int16,
  // in pairs of columns.
  template <class Row>
  [[gnu::always_inline]] void rows(int part, Row row) {
    Ints pairs[kTokens][kLanes / 2];  // of rows; in each half of the register, its 16 columns
#pragma GCC unroll 4
    for (int i = 0; i < kLanes / 2; i++) {
      const auto a = row(2 * i), b = row(2 * i + 1);
#pragma GCC unroll 3
      for (int n = 0; n < kTokens; n++) {
        const Ints q = load(tokens[n].q + 32 * part);
        pairs[n][i] = add_pairs(_mm256_hadd_epi16(a(q), b(q)));
        if (n == 0) fetch.share(i, kLanes / 2, pairs[0][i], part * Fetch::kBytes);
      }
    }
#pragma GCC unroll 3
    for (int n = 0; n < kTokens; n++) {
      const Ints first = _mm256_hadd_epi32(pairs[n][0], pairs[n][1]),
                 last = _mm256_hadd_epi32(pairs[n][2], pairs[n][3]);
      products[n][2 * part] = _mm256_permute2x128_si256(first, last, 0x20);
      products[n][2 * part + 1] = _mm256_permute2x128_si256(first, last, 0x31);
    }
    finish(part);
  }
  [[gnu::always_inline]] void finish(int part) {
    constexpr int kGroups = kKind.part_groups(), kEach = 2 / kGroups;  // pieces of a group
#pragma GCC unroll 3
    for (int n = 0; n < kTokens; n++) {
      Floats total;
#pragma GCC unroll 2
      for (int j = 0; j < kGroups; j++) {
        const int group = part * kGroups + j;
        Ints product = products[n][group * kEach];
        if (kEach == 2) product = _mm256_add_epi32(product, products[n][group * kEach + 1]);
        if (kKind.bias) product = _mm256_add_epi32(product, tokens[n].begin(group));
        add_group<kKind>(total, sums[n], product, j, group, scales[group], offsets[group],
                         tokens[n]);
      }
      add_part<kKind>(sums[n], total, part, tokens[n]);
    }
  }
};

// Types whose rows are met as they are have a kind of their own for that, as no bias may be needed
// then.
template <class Unpack>
constexpr bool meets_rows() {
  return requires { Unpack::kKindOfRows; };
}
template <class Unpack>
constexpr TileKind direct_kind() {
  if constexpr (meets_rows<Unpack>()) return Unpack::kKindOfRows;
  else return Unpack::kKind;
}

constexpr int kFetchBehind = 0;  // computing takes longer than waiting here

// out[n][32] = 32 rows . token n: 8 rows after the other. `next`: what is fetched.
template <class Unpack, int kTokens, Level kAgain>
[[gnu::noinline]] void multiply_direct(Rows rows, int parts, const void* const* tokens, float* out,
                                       const uint8_t* next) {
  constexpr int kBytes = bytes_of_256<Unpack>();
  constexpr TileKind kKind = direct_kind<Unpack>();
  using Quarter = DirectQuarter<kKind, kTokens, Fetch<kBytes * kLanes / 8, kAgain, kFetchBehind>>;
  const uint8_t* const tile_after = next;
  for (int quarter = 0; quarter < kQuarters; quarter++) {
    Rows blocks = rows.from(quarter * kLanes);
    const uint8_t* again = half_a_tile_on(rows.start, tile_after, rows.stride, quarter * kLanes);
    Floats sums[kTokens];
    for (Floats& sum : sums) sum = _mm256_setzero_ps();
    for (int block = 0, left = parts; left > 0; block++, left -= 8, blocks = blocks + kBytes) {
      TokenBlock<kKind> token[kTokens];
      for (int n = 0; n < kTokens; n++)
        token[n].set(static_cast<const Activation*>(tokens[n])[block]);
      Quarter out(token, sums, {next, again});
      if constexpr (meets_rows<Unpack>()) Unpack::multiply(blocks, out);
      else Unpack::unpack(blocks, Unpack::kBlockColumns == 256 || left > 8 ? 8 : left, out);
      next += kBytes * kLanes, again += kBytes * kLanes;
    }
    for (int n = 0; n < kTokens; n++)
      _mm256_store_ps(out + n * kTileRows + quarter * kLanes, sums[n]);
  }
}

}  // namespace
}  // namespace sharpi::avx2
