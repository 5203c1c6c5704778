// Multiplies 8 rows of unpacked weights, a quarter of a tile, with few tokens.
#pragma once
#include <type_traits>

#include "block_total.h"
#include "few_columns.h"
#include "layout.h"
#include "runtime/fetch.h"

namespace sharpi::avx2 {
namespace {

// Does what Fetch::share does for one of 8 parts, each of which begins with a whole cache line.
template <int kBytes, Level kAgain, int kBehind, class Register>
[[gnu::always_inline]] inline void share_of_part(const Fetch<kBytes, kAgain, kBehind>& fetch,
                                                 unsigned part, unsigned index, unsigned shares,
                                                 Register& sums) {
  constexpr int kEach = kBytes / kParts;
  const Fetch<kEach, kAgain, kBehind> own{fetch.next, fetch.again};
  own.share(index, shares, sums, part * kEach);
}

template <int kValue>
using Constant = std::integral_constant<int, kValue>;

// Multiplies 8 rows of 256 columns with kTokens tokens. Up to kPartsAtOnce parts may be begun, in
// any order, before they are finished; with few of them a loop over parts keeps sums in registers.
template <TileKind kKind, class LayoutOf, int kTokens, int kPartsAtOnce, class Fetch>
struct DirectQuarter {
  using Layout = LayoutOf;
  static constexpr bool kPaired = std::is_same_v<Layout, PairedRows>;
  static constexpr bool kUnrolls = kTokens == 1;  // loops over parts are unrolled
  static constexpr bool kScalesFirst = false, kInPlace = kKind.odd_by_four,
                        kByColumns = kTokens == 1 && !kTwoRegisters && sums_whole_groups<kKind>();
  static constexpr bool kPairsScales =
      kHasDot && !kPaired && kKind.whole_scales && kKind.sums_fit_words();
  static constexpr unsigned kGroups = kPartsAtOnce * kKind.part_groups();  // whose sums are kept
  const TokenBlock<kKind>* tokens;
  Floats* sums;  // (kTokens)
  const Fetch fetch;
  Floats scales[kGroups], offsets[kGroups];
  Ints whole_scales[kGroups];
  Floats d, minus_dmin;
  BlockTotal totals[kTokens];
  Ints products[kTokens][kGroups];
  Ints runs[4];  // of columns that are multiplied one by one

  DirectQuarter(const TokenBlock<kKind>* tokens, Floats* sums, Fetch fetch)
      : tokens(tokens), sums(sums), fetch(fetch) {}

  void scale(unsigned group, Floats x) { scales[group % kGroups] = x; }
  void offset(unsigned group, Floats x) { offsets[group % kGroups] = x; }
  void whole_scale(unsigned group, Ints words) { whole_scales[group % kGroups] = words; }
  // Takes the scales of a part's two groups, as the words of each dword.
  void two_scales(unsigned part, Ints words) { whole_scales[2 * part % kGroups] = words; }
  void mins(unsigned group, Floats x) { offsets[group % kGroups] = x; }
  void factors(Floats d_of_rows, Floats minus_dmin_of_rows) {
    d = d_of_rows, minus_dmin = minus_dmin_of_rows;
  }

  // Takes kCount pieces of 16 columns, `piece` and every kStep-th after it. make(i, w) unpacks
  // register i of each of them in the layout's order. finish() follows.
  template <int kCount, int kStep = 1, class Make>
  [[gnu::always_inline]] void pieces(unsigned piece, Make make) {
    if constexpr (kPaired) paired_pieces<kCount, kStep>(piece, make);
    else turned_pieces<kCount, kStep>(piece, make);
  }
  // Does the same for turned rows of one token, but multiplies what make(i, w) unpacks at once, and
  // calls meanwhile(i) before. The first 16 columns of groups of 32 come before the last.
  template <int kCount, int kStep, class Make, class Meanwhile>
  [[gnu::always_inline]] void pieces_by_columns(unsigned piece, Make make, Meanwhile meanwhile) {
    const unsigned in_group = piece % kGroupPieces;
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
      meanwhile(i);
      Ints w[kCount];
      make(i, w);
#pragma GCC unroll 4
      for (int c = 0; c < kCount; c++) {
        const int8_t* q = tokens[0].q + 16 * (piece + c * kStep) + 4 * i;
        runs[c] = add_four_columns<kKind>(i + in_group == 0, runs[c], w[c], q);
        settle(runs[c]);
      }
    }
    if (in_group < kGroupPieces - 1) return;
#pragma GCC unroll 4
    for (int c = 0; c < kCount; c++) {
      const unsigned group = (piece + c * kStep) / kGroupPieces, at = group % kGroups;
      Ints sum = sum_of_columns<kKind>(runs[c], group, tokens[0], whole_scales[at]);
      fetch.share(group, kPieces / kGroupPieces, sum);
      products[0][at] = sum;
    }
  }
  // Takes kCount groups of 32 columns from 16 * piece on. side(s)(i, w) unpacks register i of each
  // group's first (s = 0) or last (s = 1) 16 columns.
  template <int kCount, class Side>
  [[gnu::always_inline]] void groups(unsigned piece, Side side) {
    if constexpr (kPaired) {
      const auto both = [a = side(0), b = side(1)](int i, Ints w[]) __attribute__((always_inline)) {
        Ints first[kCount], last[kCount];
        a(i, first), b(i, last);
        for (int c = 0; c < kCount; c++) w[2 * c] = first[c], w[2 * c + 1] = last[c];
      };
      paired_pieces<2 * kCount, 1>(piece, both);
    } else {
      turned_pieces<kCount, 2>(piece, side(0));
      turned_pieces<kCount, 2>(piece + 1, side(1));
    }
  }
  // Takes 16 turned columns from 16 * piece on; of a group of 32 the first 16 come first.
  [[gnu::always_inline]] void weights(unsigned piece, const Ints w[4]) {
    const unsigned group = piece / kGroupPieces % kGroups;
#pragma GCC unroll 3
    for (int n = 0; n < kTokens; n++) {
      Ints sum = multiply_piece<kKind>(w, piece, tokens[n], whole_scales[group]);
      if (n == 0) fetch_with(piece, sum);
      products[n][group] = piece % kGroupPieces ? add32(products[n][group], sum) : sum;
    }
  }
  // Takes 32 turned columns from 32 * part on.
  [[gnu::always_inline]] void part(unsigned part, const Ints w[8]) {
    weights(2 * part, w);
    weights(2 * part + 1, w + 4);
    finish(part);
  }
  // Takes a whole part by eight columns of four rows: eight(g, j).w are the weights of columns 8g
  // to 8g + 7 of rows 0, 1, 4 and 5, or with j = 1 of the others. What they are multiplied with is
  // eight(g, j).of(a token's values, the same negated).
  template <class Eight>
  [[gnu::always_inline]] void eights(unsigned part, Eight eight) {
    static_assert(!kKind.bias || !kKind.dots_begin_there());
    Ints pairs[kTokens][2][2];  // [j][g / 2]: of 16 columns
    add_columns<0>(part, eight, pairs);
    add_columns<1>(part, eight, pairs);
    add_columns<2>(part, eight, pairs);
    add_columns<3>(part, eight, pairs);
#pragma GCC unroll 3
    for (int n = 0; n < kTokens; n++) add_eights(part, pairs[n], products[n]);
    finish(part);
  }
  [[gnu::always_inline]] void finish(unsigned part) {
    if constexpr (kKind.whole_scales && kHasDot) return finish_dots(part);
    else if constexpr (kKind.whole_scales) return finish_whole(part);
    constexpr int kEach = kKind.part_groups();
#pragma GCC unroll 3
    for (int n = 0; n < kTokens; n++) {
      Floats total;
#pragma GCC unroll 2
      for (int j = 0; j < kEach; j++) {
        const unsigned group = part * kEach + j, at = group % kGroups;
        Ints sum = products[n][at];
        if (kKind.bias) sum = add32(sum, tokens[n].begin(group));
        add_group<kKind>(total, sums[n], sum, j, group, scales[at], offsets[at], tokens[n]);
      }
      add_part<kKind>(sums[n], total, part, tokens[n]);
    }
  }

  // Begins and ends a block with whole scales.
  [[gnu::always_inline]] void begin() {
    for (int n = 0; n < kTokens; n++) totals[n].begin(tokens[n]);
  }
  [[gnu::always_inline]] void end() {
    for (int n = 0; n < kTokens; n++)
      sums[n] = totals[n].template added_to<kKind>(sums[n], d, minus_dmin);
  }

 private:
  static constexpr int kSafe = kHasDot ? 0 : kKind.safe_additions();  // products that fit int16
  static constexpr int kGroupPieces = kKind.group_columns / 16;

  // Adds the products of columns 8g..8g+7 of a part.
  template <int g, class Eight>
  [[gnu::always_inline]] void add_columns(unsigned part, Eight eight, Ints pairs[][2][2]) {
#pragma GCC unroll 2
    for (int j = 0; j < 2; j++) {
      const auto points = eight(Constant<g>(), j);
#pragma GCC unroll 3
      for (int n = 0; n < kTokens; n++) {
        const Ints q = qwords(load_qword(tokens[n].q + 32 * part + 8 * g));
        const Ints product = multiply_unsigned(points.w, points.of(q, sub8(zero(), q)));
        Ints& sum = pairs[n][j][g / 2];
        sum = g % 2 ? RowSums<kSafe, 1>::add(sum, product) : product;
      }
    }
    share_of_part(fetch, part, g, 4, pairs[0][1][g / 2]);
  }
  // Adds sums of 16 columns of four rows to one dword a row and group.
  [[gnu::always_inline]] static void add_eights(unsigned part, const Ints pairs[2][2],
                                                Ints products[]) {
    using Two = RowSums<kSafe, 2>;
    using Four = RowSums<kSafe, 4>;
    if constexpr (kGroupPieces == 2) {
      const Ints a = Two::add(pairs[0][0], pairs[0][1]), b = Two::add(pairs[1][0], pairs[1][1]);
      products[part % kGroups] = RowSums<kSafe, 8>::wide(Four::join_pairs_of_dwords(a, b));
    } else {
#pragma GCC unroll 2
      for (int i = 0; i < 2; i++)
        products[(2 * part + i) % kGroups] =
            Four::wide(Two::join_pairs_of_dwords(pairs[0][i], pairs[1][i]));
    }
  }
  // Fetches a share while a piece is multiplied. The pieces of blocks of 256 with whole scales are
  // one line of code, and share the lines of all parts.
  [[gnu::always_inline]] void fetch_with(unsigned piece, Ints& sum) const {
    if constexpr (kKind.whole_scales && !kTwoRegisters) fetch.share(piece, kPieces, sum);
    else share_of_part(fetch, piece / 2, piece % 2, 2, sum);
  }
  [[gnu::always_inline]] void finish_whole(unsigned part) {
    constexpr unsigned kEach = kKind.part_groups();
#pragma GCC unroll 3
    for (int n = 0; n < kTokens; n++) {
      Ints product = products[n][kEach * part];
      if constexpr (kEach == 2) product = add32(product, products[n][2 * part + 1]);
      totals[n].add_products(product, part, tokens[n]);
      if constexpr (kKind.has_offsets) totals[n].add_mins(offsets[part], part, tokens[n]);
    }
  }
  // Returns a part's products, scales included: integers, with up to 24 bits that are not zero.
  [[gnu::always_inline]] Floats scaled_dots(int n, unsigned part) const {
    constexpr unsigned kEach = kKind.part_groups();
    const Ints* dots = products[n] + kEach * part;
    if constexpr (kPairsScales)
      return to_float(madd16(join_low_words(dots[0], dots[1]), whole_scales[2 * part]));
    Floats sum;
#pragma GCC unroll 2
    for (unsigned j = 0; j < kEach; j++) {
      const unsigned group = kEach * part + j;
      Ints dot = dots[j];
      if (kKind.bias && (kPaired || !kKind.dots_begin_there()))
        dot = add32(dot, tokens[n].begin(group));
      add_scaled(sum, to_float(dot), word_scale(whole_scales[group]), j);
    }
    return sum;
  }
  [[gnu::always_inline]] void finish_dots(unsigned part) {
#pragma GCC unroll 3
    for (int n = 0; n < kTokens; n++) {
      totals[n].add_scaled_products(scaled_dots(n, part), part, tokens[n]);
      if constexpr (kKind.has_offsets) totals[n].add_mins(offsets[part], part, tokens[n]);
    }
  }
  template <int kCount, int kStep, class Make>
  [[gnu::always_inline]] void paired_pieces(unsigned piece, Make make) {
    constexpr int kEach = kCount / kGroupPieces;
    Ints half[2][kTokens][kEach];
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
      Ints pairs[2][kTokens][kEach];
#pragma GCC unroll 2
      for (int i = 0; i < 2; i++) {
        Ints w[kCount];
        make(2 * h + i, w);
        multiply_pieces<kCount, kStep>(w, piece, pairs[i]);
      }
#pragma GCC unroll 3
      for (int n = 0; n < kTokens; n++)
#pragma GCC unroll 8
        for (int g = 0; g < kEach; g++)
          half[h][n][g] = RowSums<kSafe, kGroupPieces>::add_dwords(pairs[0][n][g], pairs[1][n][g]);
    }
#pragma GCC unroll 3
    for (int n = 0; n < kTokens; n++)
#pragma GCC unroll 8
      for (int g = 0; g < kEach; g++) {
        const unsigned group = piece / kGroupPieces + g * kStep, at = group % kGroups;
        Ints sum = sum_halves(half[0][n][g], half[1][n][g], group, tokens[n]);
        if (n == 0) fetch.share(group, kPieces / kGroupPieces, sum);
        products[n][at] = sum;
      }
  }
  // Adds up a group's products to one dword a row, from the rows 0, 1, 0, 1 and 2, 3, 2, 3 of each
  // four, and multiplies them by its scale if that is whole.
  [[gnu::always_inline]] Ints sum_halves(Ints first, Ints last, unsigned group,
                                         const TokenBlock<kKind>& token) const {
    using Sums = RowSums<kSafe, 2 * kGroupPieces>;
    using All = RowSums<kSafe, 4 * kGroupPieces>;
    const Ints scales = whole_scales[group % kGroups];
    if constexpr (!kKind.whole_scales || kHasDot)
      return All::wide(Sums::add_pairs_of_dwords(first, last));
    else if constexpr (All::kShort)
      return madd16(token.unbias_words(Sums::add_pairs_of_dwords(first, last), group), scales);
    else
      return All::add_pairs_of_dwords(madd16(first, shuffle_dwords<0x44>(scales)),
                                      madd16(last, shuffle_dwords<0xee>(scales)));
  }
  template <int kCount, int kStep, class Make>
  [[gnu::always_inline]] void turned_pieces(unsigned piece, Make make) {
#pragma GCC unroll 8
    for (int c = 0; c < kCount; c++) {
      Ints w[4], all[kCount];
#pragma GCC unroll 4
      for (int k = 0; k < 4; k++) make(k, all), w[k] = all[c];  // the compiler drops the others
      weights(piece + c * kStep, w);
    }
  }
  // Multiplies a pair of rows with each token: sums[n][group].
  template <int kCount, int kStep, class Sums>
  [[gnu::always_inline]] void multiply_pieces(const Ints w[], unsigned piece, Sums& sums) const {
#pragma GCC unroll 8
    for (int c = 0; c < kCount; c++)
#pragma GCC unroll 3
      for (int n = 0; n < kTokens; n++) {
        const Ints x = twice(tokens[n].q + 16 * (piece + c * kStep)),
                   product = multiply_pair<kKind>(w[c], x);
        Ints& sum = sums[n][c / kGroupPieces];
        if (c % kGroupPieces == 0) sum = product;
        else sum = kHasDot ? dot(sum, w[c], x) : RowSums<kSafe, 1>::add(sum, product);
      }
  }
};

}  // namespace
}  // namespace sharpi::avx2
