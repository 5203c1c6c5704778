// A tile of unpacked weights, 32 rows x 256 columns, and its products with a few of many tokens.
#pragma once
#include "layout.h"
#include "runtime/read_ahead.h"
#include "token_block.h"

namespace sharpi::avx2 {
namespace {

constexpr int kTokensAtOnce = 4;
// Returns the registers of rows for that many tokens, so that eight sums and operands fit.
constexpr int registers_at_once(int tokens) {
  return (tokens == 1 ? 4 : 2) / (kTwoRegisters ? 2 : 1);
}

struct alignas(64) Tile {
  uint8_t w[64][kQuarters]
           [32];  // [column / 4][row / 8][8 rows x 4 columns], as vpmaddubsw takes them
  uint8_t magnitude[64][kQuarters]
                   [32];  // with complements, for which a part's sums begin with `start`
  int32_t start[kParts][kTileRows];
  float scale[kMaxGroups][kTileRows];   // or whole scales, each twice, as words
  float offset[kMaxGroups][kTileRows];  // or mins, as BlockTotal takes them
  float d[kTileRows], minus_dmin[kTileRows];
};

// Stores the unpacked weights of 8 of a tile's rows, as their kind needs them.
template <TileKind kKind>
struct TileQuarter {
  Tile& tile;
  const int quarter;

  using Layout = TurnedRows;
  static constexpr bool kUnrolls = false, kInPlace = false, kByColumns = false,
                        kPairsScales = false,
                        kScalesFirst = true;  // is faster, unlike for few tokens
  void scale(int group, Floats x) {
    store_floats(tile.scale[group] + quarter * kLanes, x);
    if constexpr (kKind.complements) offset(group, less_float_bits(x));
  }
  void offset(int group, Floats x) { store_floats(tile.offset[group] + quarter * kLanes, x); }
  void whole_scale(int group, Ints words) { store(tile.scale[group] + quarter * kLanes, words); }
  void mins(int group, Floats x) { offset(group, x); }
  void factors(Floats d, Floats minus_dmin) {
    store_floats(tile.d + quarter * kLanes, d);
    store_floats(tile.minus_dmin + quarter * kLanes, minus_dmin);
  }
  // Takes kCount pieces of 16 columns, `piece` and every kStep-th after it. make(i, w) unpacks
  // register i of each of them.
  template <int kCount, int kStep = 1, class Make>
  [[gnu::always_inline]] void pieces(int piece, Make make) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
      Ints w[kCount];
      make(i, w);
      for (int c = 0; c < kCount; c++) set(4 * (piece + c * kStep) + i, w[c]);
    }
  }
  // Takes kCount groups of 32 columns from 16 * piece on; pieces() gets side(s) for each half.
  template <int kCount, class Side>
  [[gnu::always_inline]] void groups(int piece, Side side) {
    pieces<kCount, 2>(piece, side(0));
    pieces<kCount, 2>(piece + 1, side(1));
  }
  // Takes 16 columns from 16 * piece on.
  void weights(int piece, const Ints w[4]) {
    for (int k = 0; k < 4; k++) set(4 * piece + k, w[k]);
  }
  // Takes 32 columns from 32 * part on.
  void part(int part, const Ints w[8]) { weights(2 * part, w), weights(2 * part + 1, w + 4); }
  void finish(int part) {
    if constexpr (kKind.complements) begin_sums(part);
  }

 private:
  // Stores columns 4k to 4k + 3.
  [[gnu::always_inline]] void set(int k, Ints w) {
    if constexpr (kKind.complements) store(tile.magnitude[k][quarter], abs8(w));
    store(tile.w[k][quarter], kKind.complements ? greater8(zero(), w) : w);
  }
  // Adds up the magnitudes of negative weights, as these are multiplied with ~x, which is -x - 1.
  [[gnu::always_inline]] void begin_sums(int part) {
    Ints less = zero();
#pragma GCC unroll 8
    for (int k = 8 * part; k < 8 * part + 8; k++)
      less = add16(less, madd8(load(tile.magnitude[k][quarter]), load(tile.w[k][quarter])));
    store(tile.start[part] + quarter * kLanes, add32(float_bits(), madd16(less, words(-1))));
  }
};

// Adds the integer products of one group: p[n][r] += w[r] . q[n], times the group's scale if that
// is whole.
template <TileKind kKind, int kTokens, int kRegisters>
inline void multiply_group(const uint8_t* w, const float* scale, int group,
                           const TokenBlock<kKind>* tokens, Ints p[][kRegisters]) {
  constexpr int kRun = kKind.safe_additions(), kSteps = kKind.group_columns / 4;
  constexpr bool kAtOnce = kRun == 1 && !kKind.whole_scales;
#pragma GCC unroll 8
  for (int k = 0; k < kSteps; k += kRun) {
    Ints run[kTokens][kRegisters];
#pragma GCC unroll 8
    for (int i = 0; i < kRun; i++) {
      Ints x[kTokens];
      for (int n = 0; n < kTokens; n++)
        x[n] = dwords(load_dword(tokens[n].q + group * kKind.group_columns + 4 * (k + i)));
#pragma GCC unroll 4
      for (int r = 0; r < kRegisters; r++) {
        const uint8_t* at = w + (k + i) * kQuarters * 32 + 32 * r;
        const Ints weights = load(at);
        const Ints magnitudes = kKind.complements ? load(at + sizeof(Tile::w)) : weights;
#pragma GCC unroll 4
        for (int n = 0; n < kTokens; n++) {
          const Ints product = kKind.complements ? madd8(magnitudes, bit_xor(x[n], weights))
                                                 : multiply_four<kKind>(weights, x[n]);
          if constexpr (kAtOnce) {
            p[n][r] = add32(p[n][r], add_pairs(product));
            settle(p[n][r]);
            continue;
          }
          run[n][r] = i ? add16(run[n][r], product) : tokens[n].unbias_words(product, group);
          settle(run[n][r]);  // otherwise additions are put off and every product spills
        }
      }
    }
    if constexpr (kAtOnce) continue;
    for (int n = 0; n < kTokens; n++)
      for (int r = 0; r < kRegisters; r++)
        p[n][r] = add32(p[n][r], kKind.whole_scales ? madd16(run[n][r], load(scale + r * kLanes))
                                                    : add_pairs(run[n][r]));
  }
}

// Does the same with dot products; whole scales are multiplied in later.
template <TileKind kKind, int kTokens, int kRegisters>
inline void dot_group(const uint8_t* w, const int8_t* const q[], Ints p[][kRegisters]) {
#pragma GCC unroll 8
  for (int k = 0; k < kKind.group_columns / 4; k++) {
#pragma GCC unroll 4
    for (int r = 0; r < kRegisters; r++) {
      const Ints weights = load(w + k * kQuarters * 32 + 32 * r);
#pragma GCC unroll 4
      for (int n = 0; n < kTokens; n++)
        p[n][r] = dot(p[n][r], weights, dwords(load_dword(q[n] + 4 * k)));
    }
  }
}

// Adds the products of part `part` to sum[n][r], for kRegisters * 8 rows from `first` on.
template <TileKind kKind, int kTokens, int kRegisters>
  requires(kKind.complements)
inline void multiply_part(const Tile& tile, int first, int part, const TokenBlock<kKind>* tokens,
                          Floats sum[][kRegisters]) {
  Ints p[kTokens][kRegisters];
  for (int r = 0; r < kRegisters; r++)
    for (int n = 0; n < kTokens; n++) p[n][r] = load(tile.start[part] + first + r * kLanes);
  multiply_group<kKind, kTokens, kRegisters>(tile.w[8 * part][first / kLanes], nullptr, part,
                                             tokens, p);
  for (int r = 0; r < kRegisters; r++) {
    const Floats scale = load_floats(tile.scale[part] + first + r * kLanes);
    const Floats less = load_floats(tile.offset[part] + first + r * kLanes);
    for (int n = 0; n < kTokens; n++)
      add_part<kKind>(sum[n][r], multiply_add(as_floats(p[n][r]), scale, less), part, tokens[n]);
  }
}
template <TileKind kKind, int kTokens, int kRegisters>
inline void multiply_part(const Tile& tile, int first, int part, const TokenBlock<kKind>* tokens,
                          Floats sum[][kRegisters]) {
  constexpr int kSteps = kKind.group_columns / 4;
  Floats total[kTokens][kRegisters];
  const auto group = [&](int j) __attribute__((always_inline)) {
    const int g = part * kKind.part_groups() + j;
    const int8_t* q[kTokens];
    Ints p[kTokens][kRegisters];
    for (int n = 0; n < kTokens; n++) {
      q[n] = tokens[n].q + g * kKind.group_columns;
      for (Ints& x : p[n]) x = tokens[n].begin(g);
    }
    const uint8_t* w = tile.w[g * kSteps][first / kLanes];
    if constexpr (kHasDot) dot_group<kKind, kTokens, kRegisters>(w, q, p);
    else multiply_group<kKind, kTokens, kRegisters>(w, nullptr, g, tokens, p);
    for (int n = 0; n < kTokens; n++)
      for (int r = 0; r < kRegisters; r++)
        add_group<kKind>(total[n][r], sum[n][r], p[n][r], j, g,
                         load_floats(tile.scale[g] + first + r * kLanes),
                         load_floats(tile.offset[g] + first + r * kLanes), tokens[n]);
  };
  group(0);
  if constexpr (kKind.part_groups() == 2) group(1);
  for (int n = 0; n < kTokens; n++)
    for (int r = 0; r < kRegisters; r++) add_part<kKind>(sum[n][r], total[n][r], part, tokens[n]);
}

// Computes out[n][rows] += tile . token n, for kRegisters * 8 rows from `first` on.
template <TileKind kKind, int kTokens, int kRegisters>
inline void multiply_rows(const Tile& tile, int first, int num_parts,
                          const TokenBlock<kKind>* tokens, float* out, ReadAhead& ahead) {
  Floats sum[kTokens][kRegisters];
  for (int n = 0; n < kTokens; n++)
    for (int r = 0; r < kRegisters; r++)
      sum[n][r] = load_floats(out + n * kTileRows + first + r * kLanes);
#pragma GCC unroll 1
  for (int part = 0; part < num_parts; part++) {
    multiply_part<kKind, kTokens, kRegisters>(tile, first, part, tokens, sum);
    ahead.advance();
  }
  for (int n = 0; n < kTokens; n++)
    for (int r = 0; r < kRegisters; r++)
      store_floats(out + n * kTileRows + first + r * kLanes, sum[n][r]);
}

}  // namespace
}  // namespace sharpi::avx2
