// Defines the order in which a token's floats are added for types with whole scales.
//
// A part's products, scales included, are an integer, and so are its sums of 16 times their mins.
// Each part adds its float to the block's total, which d multiplies once.
#pragma once
#include "token_block.h"

namespace sharpi::avx2 {
namespace {

// Accumulates one token's products with 8 rows over a block of 256 columns.
struct BlockTotal {
  Floats products, mins;

  template <TileKind kKind>
  [[gnu::always_inline]] void begin(const TokenBlock<kKind>& token) {
    products = kKind.one_too_large ? broadcast(&token.minus_sum) : zero_floats();
    mins = zero_floats();
  }

  template <TileKind kKind>
  [[gnu::always_inline]] void add_products(Ints product, int part, const TokenBlock<kKind>& token) {
    add_scaled_products(to_float(product), part, token);
  }
  template <TileKind kKind>
  [[gnu::always_inline]] void add_scaled_products(Floats x, int part,
                                                  const TokenBlock<kKind>& token) {
    products = multiply_add(x, broadcast(token.product_scale(part)), products);
  }
  // Takes a part's mins: one float for a group of 32, or two words for its two groups of 16.
  template <TileKind kKind>
  [[gnu::always_inline]] void add_mins(Floats x, int part, const TokenBlock<kKind>& token) {
    if constexpr (kKind.group_columns == 32) {
      mins = multiply_add(x, broadcast(token.sum + part), mins);
    } else {
      const Ints sums = times_sums(as_ints(x), part, token);
      mins = multiply_add(to_float(sums), broadcast(token.mins_scale(part)), mins);
    }
  }
  template <TileKind kKind>
  [[gnu::always_inline]] Floats added_to(Floats sum, Floats d, Floats minus_dmin) const {
    sum = multiply_add(products, d, sum);
    return kKind.has_offsets ? multiply_add(mins, minus_dmin, sum) : sum;
  }

 private:
  // Multiplies two words of each row with the token's two sums of 16, and adds the products.
  template <TileKind kKind>
  [[gnu::always_inline]] static Ints times_sums(Ints words, int part,
                                                const TokenBlock<kKind>& token) {
    return madd16(words, dwords(load_dword(token.mins_sums(part))));
  }
};

}  // namespace
}  // namespace sharpi::avx2
