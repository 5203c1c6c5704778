// TileKind, the arithmetic of a quant type, and TokenBlock, a token's side of the products.
#pragma once
#include <bit>

#include "matmul/matmul.h"
#include "row_sums.h"

namespace sharpi::avx2 {
namespace {

constexpr int kLanes = 8;       // rows of a register
constexpr int kQuarters = 4;    // registers of a tile's 32 rows
constexpr int kMaxGroups = 16;  // of 16 columns; or 8 of 32
constexpr int kParts = 8;       // of 256 columns, each of 32, with one activation scale
constexpr int kPieces = 16;     // of 16 columns: what is unpacked at once

// weight = scale * (w - bias) + offset, the offset only where the type has one. Where scales are
// whole, they are integers of at most 8 bits, and so are mins: weight = d * scale * (w - bias) -
// dmin * min.
struct TileKind {
  int group_columns;  // that share a scale: 16 or 32
  bool has_offsets;
  int bias;
  int max_weight;  // of w; with 127 or 128 w is signed, and dot products cannot take it
  bool whole_scales = false;
  bool odd_by_four = false;    // weights of odd parts are four times what they mean
  bool complements = false;    // a tile has magnitudes of signed weights, and 0 or -1 for signs
  bool one_too_large = false;  // all weights are: a block's total begins at minus a token's sum

  // Tells whether a group of 16 begins at -bias * its sums, as int16. Its sums then stand for
  // weights of at most `bias`, which fit; those on the way may wrap.
  constexpr bool starts_as_words() const { return whole_scales && bias > 0 && !kHasDot; }
  // Returns how many products of four columns fit int16; each is at most 2 * max_weight * 127.
  constexpr int safe_additions() const {
    if (starts_as_words()) return group_columns / 4;
    const int safe = max_weight <= 15 ? 8 : max_weight <= 31 ? 4 : max_weight <= 63 ? 2 : 1;
    return safe < group_columns / 4 ? safe : group_columns / 4;
  }
  // Tells whether sums of a group of 16 fit int16, without the bias.
  constexpr bool sums_fit_words() const {
    return group_columns == 16 && (bias ? bias : max_weight) * 16 * 127 <= INT16_MAX;
  }
  // Tells whether dot products of a group begin at -bias * its sum.
  constexpr bool dots_begin_there() const { return kHasDot && whole_scales && group_columns == 16; }
  constexpr int part_groups() const { return 32 / group_columns; }
};

// Returns the kind of signed weights; for dot products, biased() makes them unsigned.
constexpr TileKind signed_kind(int max_weight) {
  return kHasDot ? TileKind{32, false, 128, 255} : TileKind{32, false, 0, max_weight};
}
// Returns the kind for many tokens. Signed weights hand their signs to every token's values: with
// complements that is an instruction for which more ports are free, at a cost for each tile.
constexpr TileKind kind_of_many(TileKind kind) {
  kind.complements = kind.max_weight >= 127 && !kHasDot && !kTwoRegisters;
  return kind;
}
inline Ints biased(Ints w) { return kHasDot ? bit_xor(w, bytes(-128)) : w; }

// A token's values in a block of 256 columns. A part is 32 of them, with one scale.
template <TileKind kKind>
struct TokenBlock {
  const int8_t* q;
  const float* scale;                     // of each part
  const int16_t* sum16;                   // of each 16
  alignas(32) int32_t start[kMaxGroups];  // -bias * sum of the group: its integer sum begins there;
                                          // or two words, bias * its sums, to be subtracted
  alignas(32) float sum[kMaxGroups];      // of the group's activations, to multiply the offsets
  // Where weights of odd parts are too large: the scales, and sum16 times as much.
  alignas(32) float of_product[kParts];
  alignas(32) int16_t sum_of_mins[kMaxGroups];
  float minus_sum;  // of all activations, where weights are one too large

  void set(const Activation& a) {
    q = a.q;
    scale = a.scale;
    sum16 = a.sum16;
    if constexpr (kKind.odd_by_four)
      store_floats(of_product, load_any_floats(scale) * alternate(1.f, 0.25f));
    if constexpr (kOneScale && kKind.has_offsets) set_sums_of_mins();
    if constexpr (kKind.starts_as_words()) set_words(a);
    else if constexpr (kHasDot || !kKind.whole_scales || kKind.group_columns == 32) set_all_sums(a);
    // Broadcasts from memory cost less than those that compilers make of a register.
    asm("" : "+m"(start), "+m"(sum), "+m"(of_product), "+m"(sum_of_mins));
    if constexpr (kKind.one_too_large) set_minus_sum(a);
  }
  // Returns the address of the scale of a part's products.
  const float* product_scale(int part) const {
    return (kKind.odd_by_four ? of_product : scale) + part;
  }
  // Returns the addresses of a part's scale and of its two sums of 16, for mins.
  const float* mins_scale(int part) const { return kOneScale ? product_scale(part) : scale + part; }
  const int16_t* mins_sums(int part) const { return (kOneScale ? sum_of_mins : sum16) + 2 * part; }
  Ints begin(int group) const { return kKind.bias ? dwords(start[group]) : zero(); }
  // Subtracts the bias's share of a group from sums of its products that are words.
  Ints unbias_words(Ints sums, int group) const {
    if constexpr (kKind.starts_as_words()) return sub16(sums, dwords(start[group]));
    else return sums;
  }

 private:
  // Whether mins have the scale of odd parts' products.
  static constexpr bool kOneScale = kKind.odd_by_four && !kTwoRegisters;

  void set_sums_of_mins() {
    const Ints all = load_any(sum16), odd_parts = qwords(int64_t(0xffffffff00000000));
    store(sum_of_mins, select(all, shl16(all, 2), odd_parts));
  }
  void set_all_sums(const Activation& a) {
    const Floats scales = load_any_floats(a.scale);
    if constexpr (kKind.group_columns == 32) {
      set_sums(0, a.sum32, scales);
    } else {  // every scale serves two groups
      set_sums(0, a.sum16, first_twice(scales));
      set_sums(8, a.sum16 + 8, last_twice(scales));
    }
  }
  void set_minus_sum(const Activation& a) {
    const __m128 four = sum_of_halves(to_float(load_words(a.sum32)) * load_any_floats(a.scale));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    minus_sum = -_mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
    asm("" : "+m"(minus_sum));
  }
  void set_words(const Activation& a) {
    static_assert(kKind.group_columns == 16 && kKind.bias * 127 * 8 <= INT16_MAX);
    for (int g = 0; g < kMaxGroups; g += kLanes) {
      const Ints last = load_words(a.sum8 + g), first = sub32(load_words(a.sum16 + g), last);
      const Ints both = bit_or(bit_and(first, dwords(0xffff)), shl32(last, 16));
      store(start + g, shl16(both, std::bit_width(unsigned(kKind.bias)) - 1));
    }
  }
  void set_sums(int group, const int16_t* sums, Floats scales) {
    const Ints eight = load_words(sums);
    if constexpr (kKind.bias && kKind.odd_by_four) {
      const int one = -kKind.bias, four = 4 * one;
      store(start, multiply32(eight, dwords(one, four, one, four, one, four, one, four)));
    } else if (kKind.bias) {
      store(start + group, multiply32(eight, dwords(-kKind.bias)));
    }
    if (kKind.has_offsets) store_floats(sum + group, to_float(eight) * scales);
  }
};

// Multiplies unsigned weights: four columns are added to int32 if one instruction does that, else
// two to int16.
[[gnu::always_inline]] inline Ints multiply_unsigned(Ints w, Ints x) {
  if constexpr (kHasDot) return dot(zero(), w, x);
  else return madd8(w, x);
}

// Multiplies 8 rows of 4 columns; pairs of columns are added to int16.
template <TileKind kKind>
[[gnu::always_inline]] inline Ints multiply_four(Ints w, Ints x) {
  if constexpr (kKind.max_weight < 127) return madd8(w, x);
  // The signs of signed weights go to the activations, which are never -128.
  return madd8(abs8(w), sign8(x, w));
}

// Sums with complements are kept as the bits of a large float plus the integer. One fused product
// makes scaled floats of them: the same bits, without a conversion.
constexpr float kLargeFloat = 0x1.8p23f;  // for integers of 22 bits and a sign
inline Ints float_bits() { return as_ints(floats(kLargeFloat)); }
inline Floats less_float_bits(Floats scale) { return scale * floats(-kLargeFloat); }  // exact

// The one order in which a token's floats are added: for each part, its groups' products in order
// become `part`, the offsets are added to `sum`, then the part is.
[[gnu::always_inline]] inline void add_scaled(Floats& part, Floats x, const Floats& scale, int j) {
  part = j ? multiply_add(x, scale, part) : x * scale;
}
template <TileKind kKind>
[[gnu::always_inline]] inline void add_group(Floats& part, Floats& sum, Ints product, int j,
                                             int group, const Floats& scale, const Floats& offset,
                                             const TokenBlock<kKind>& token) {
  add_scaled(part, to_float(product), scale, j);
  if (kKind.has_offsets) sum = multiply_add(broadcast(token.sum + group), offset, sum);
}
template <TileKind kKind>
[[gnu::always_inline]] inline void add_part(Floats& sum, Floats part, int index,
                                            const TokenBlock<kKind>& token) {
  sum = multiply_add(part, broadcast(token.product_scale(index)), sum);
}

}  // namespace
}  // namespace sharpi::avx2
