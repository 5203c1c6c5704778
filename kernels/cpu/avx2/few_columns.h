// Multiplies 16 columns of weights with 16 values of a token.
#pragma once
#include "token_block.h"

namespace sharpi::avx2 {
namespace {

// Multiplies 16 turned columns of 8 rows, with dot products.
[[gnu::always_inline]] inline Ints dot_piece(const Ints w[4], const int8_t* q, Ints sum) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) sum = dot(sum, w[i], dwords(load_dword(q + 4 * i)));
  return sum;
}

// Returns whether the products of a group fit the sum that they begin in.
template <TileKind kKind>
constexpr bool sums_whole_groups() {
  return kHasDot || kKind.safe_additions() == kKind.group_columns / 4;
}

// Adds four turned columns of 8 rows to the sum of a group.
template <TileKind kKind>
[[gnu::always_inline]] inline Ints add_four_columns(bool first, Ints run, Ints w, const int8_t* q) {
  const Ints x = dwords(load_dword(q));
  if constexpr (kHasDot) return dot(first ? zero() : run, w, x);
  const Ints product = multiply_four<kKind>(w, x);
  return first ? product : add16(run, product);
}

// Converts such a sum to int32. Without dot products, whole scales are multiplied in here.
template <TileKind kKind>
[[gnu::always_inline]] inline Ints sum_of_columns(Ints run, unsigned group,
                                                  const TokenBlock<kKind>& token,
                                                  const Ints& scales) {
  if constexpr (kHasDot) return run;
  run = token.unbias_words(run, group);
  return kKind.whole_scales ? madd16(run, scales) : add_pairs(run);
}

// Multiplies 16 turned columns of 8 rows to int32. Without dot products, whole scales are
// multiplied in here.
template <TileKind kKind>
[[gnu::always_inline]] inline Ints multiply_piece(const Ints w[4], unsigned piece,
                                                  const TokenBlock<kKind>& token,
                                                  const Ints& scales) {
  const int8_t* q = token.q + 16 * piece;
  if constexpr (kHasDot)
    return dot_piece(w, q, kKind.dots_begin_there() ? token.begin(int(piece)) : zero());
  constexpr int kRun = kKind.safe_additions() < 4 ? kKind.safe_additions() : 4;
  Ints sum;
#pragma GCC unroll 4
  for (int k = 0; k < 4; k += kRun) {
    Ints run;
#pragma GCC unroll 4
    for (int i = k; i < k + kRun; i++) {
      const Ints product = multiply_four<kKind>(w[i], dwords(load_dword(q + 4 * i)));
      run = i > k ? add16(run, product) : product;
    }
    run = token.unbias_words(run, piece);
    run = kKind.whole_scales ? madd16(run, scales) : add_pairs(run);
    sum = k ? add32(sum, run) : run;
  }
  return sum;
}

// Multiplies a pair of rows as multiply_unsigned() does; both halves of x have the token's values.
template <TileKind kKind>
[[gnu::always_inline]] inline Ints multiply_pair(Ints w, Ints x) {
  if constexpr (kHasDot) return multiply_unsigned(w, x);
  // The signs of weights, none of which is -128, go to the activations' magnitudes, which are then
  // the same for all rows.
  if constexpr (kKind.max_weight == 127) return madd8(abs8(x), sign8(w, x));
  else return multiply_four<kKind>(w, x);
}

}  // namespace
}  // namespace sharpi::avx2
