// Products of 16 columns with 16 values of a token.
#pragma once
#include "token_block.h"

namespace sharpi::avx2 {
namespace {

// Of 8 rows, turned.
[[gnu::always_inline]] inline Ints dot_piece(const Ints w[4], const int8_t* q) {
  Ints sum = zero();
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) sum = dot(sum, w[i], dwords(load_dword(q + 4 * i)));
  return sum;
}

// Of 8 rows, turned, as int32: times their scales where these are whole and no
// dot products are taken.
template <TileKind kKind>
[[gnu::always_inline]] inline Ints multiply_piece(const Ints w[4], const int8_t* q,
                                                  const Ints& scales) {
  if constexpr (kHasDot) return dot_piece(w, q);
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
    run = kKind.whole_scales ? madd16(run, scales) : add_pairs(run);
    sum = k ? add32(sum, run) : run;
  }
  return sum;
}

// Of a pair of rows, as multiply_unsigned() has them; both halves of x have the values.
template <TileKind kKind>
[[gnu::always_inline]] inline Ints multiply_pair(Ints w, Ints x) {
  if constexpr (kHasDot) return multiply_unsigned(w, x);
  // Signed weights that -128 is none of give their signs to the activations' magnitudes, made once
  // for all rows.
  if constexpr (kKind.max_weight == 127) return madd8(abs8(x), sign8(w, x));
  else return multiply_four<kKind>(w, x);
}

}  // namespace
}  // namespace sharpi::avx2
