// A tile of unpacked weights, 32 rows x 256 columns, and its product with a few tokens.
//
// The only kernel for int8 activations: one token or many, a token's floats are added in the same
// order, group after group.
#pragma once
#include "../read_ahead.h"
#include "registers.h"

namespace sharpi::avx2 {

constexpr int kLanes = 8;         // rows of a register
constexpr int kParts = 4;         // registers of a tile's 32 rows
constexpr int kMaxGroups = 16;    // of 16 columns; or 8 of 32
constexpr int kTokensAtOnce = 4;  // with two registers of rows: the eight sums fit beside operands

// weight = scale * (w - bias) + offset, the offset only where the type has one.
struct alignas(64) Tile {
  uint8_t w[64][kParts][32];  // [column / 4][row / 8][8 rows x 4 columns], as vpmaddubsw takes them
  float scale[kMaxGroups][kTileRows];
  float offset[kMaxGroups][kTileRows];
};

// What the kernel must know of a type beside its blocks.
struct TileKind {
  int group_columns;  // that share a scale: 16 or 32
  bool has_offsets;
  int bias;
  int max_weight;  // of w; 128: w is signed

  // Products of four columns that an int16 can add up: each is at most 2 * max_weight * 127.
  constexpr int safe_additions() const {
    const int safe = max_weight <= 15 ? 8 : max_weight <= 31 ? 4 : max_weight <= 63 ? 2 : 1;
    return safe < group_columns / 4 ? safe : group_columns / 4;
  }
  constexpr int part_groups() const { return 32 / group_columns; }
};

// What one token brings to a tile. A part is 32 columns, with one scale of the activations.
template <TileKind kKind>
struct TokenBlock {
  const int8_t* q;
  const float* scale;                     // of each part
  alignas(32) int32_t start[kMaxGroups];  // -bias * sum of the group: its integer sum begins there
  alignas(32) float sum[kMaxGroups];      // of the activations in the group, meets the offsets

  void set(const Activation& a) {
    q = a.q;
    scale = a.scale;
    const Floats scales = _mm256_loadu_ps(a.scale);
    if constexpr (kKind.group_columns == 32) {
      set_sums(0, a.sum32, scales);
    } else {  // every scale serves two groups
      const Ints twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
      set_sums(0, a.sum16, _mm256_permutevar8x32_ps(scales, twice));
      set_sums(8, a.sum16 + 8,
               _mm256_permutevar8x32_ps(scales, _mm256_add_epi32(twice, dwords(4))));
    }
  }

 private:
  void set_sums(int group, const int16_t* sums, Floats scales) {
    const Ints eight = _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i*)sums));
    if (kKind.bias) store(start + group, _mm256_mullo_epi32(eight, dwords(-kKind.bias)));
    if (kKind.has_offsets) _mm256_store_ps(sum + group, _mm256_mul_ps(to_float(eight), scales));
  }
};

// w . x for 8 rows and 4 columns, as pairs of columns in int16; unsigned weights.
inline Ints multiply_unsigned(Ints w, Ints x) { return _mm256_maddubs_epi16(w, x); }
// The same for signed weights: their signs go to the activations, which -128 never is one of.
inline Ints multiply_signed(Ints w, Ints x) {
  return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}

// Integer products of one group: p[n][r] += w[r] . q[n]
template <TileKind kKind, int kTokens, int kRegisters>
inline void multiply_group(const uint8_t* w, const int8_t* const q[], Ints p[][kRegisters]) {
  constexpr int kRun = kKind.safe_additions(), kSteps = kKind.group_columns / 4;
#pragma GCC unroll 8
  for (int k = 0; k < kSteps; k += kRun) {
    Ints run[kTokens][kRegisters];
#pragma GCC unroll 8
    for (int i = 0; i < kRun; i++) {
      Ints x[kTokens];
      for (int n = 0; n < kTokens; n++) x[n] = dwords(load_dword(q[n] + 4 * (k + i)));
#pragma GCC unroll 4
      for (int r = 0; r < kRegisters; r++) {
        const Ints weights = load(w + (k + i) * kParts * 32 + 32 * r);
#pragma GCC unroll 4
        for (int n = 0; n < kTokens; n++) {
          const Ints product = kKind.max_weight == 128 ? multiply_signed(weights, x[n])
                                                       : multiply_unsigned(weights, x[n]);
          run[n][r] = i ? _mm256_add_epi16(run[n][r], product) : product;
          asm("" : "+x"(run[n][r]));  // else the additions are put off and every product spilled
        }
      }
    }
    for (int n = 0; n < kTokens; n++)
      for (int r = 0; r < kRegisters; r++)
        p[n][r] = _mm256_add_epi32(p[n][r], _mm256_madd_epi16(run[n][r], _mm256_set1_epi16(1)));
  }
}

// sum[n][r] += the products of part `part` for kRegisters * 8 rows from `first`
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
      for (Ints& x : p[n]) x = kKind.bias ? dwords(tokens[n].start[g]) : zero();
    }
    multiply_group<kKind, kTokens, kRegisters>(tile.w[g * kSteps][first / kLanes], q, p);
    for (int n = 0; n < kTokens; n++)
      for (int r = 0; r < kRegisters; r++) {
        const Floats scale = _mm256_load_ps(tile.scale[g] + first + r * kLanes);
        const Floats x = to_float(p[n][r]);
        total[n][r] = j ? _mm256_fmadd_ps(x, scale, total[n][r]) : _mm256_mul_ps(x, scale);
        if (kKind.has_offsets)
          sum[n][r] =
              _mm256_fmadd_ps(_mm256_broadcast_ss(tokens[n].sum + g),
                              _mm256_load_ps(tile.offset[g] + first + r * kLanes), sum[n][r]);
      }
  };
  group(0);
  if constexpr (kKind.part_groups() == 2) group(1);
  for (int n = 0; n < kTokens; n++)
    for (int r = 0; r < kRegisters; r++)
      sum[n][r] =
          _mm256_fmadd_ps(total[n][r], _mm256_broadcast_ss(tokens[n].scale + part), sum[n][r]);
}

// out[n][rows] += tile . token n, for kRegisters * 8 rows from `first`
template <TileKind kKind, int kTokens, int kRegisters>
inline void multiply_rows(const Tile& tile, int first, int num_parts,
                          const TokenBlock<kKind>* tokens, float* out, ReadAhead& ahead) {
  Floats sum[kTokens][kRegisters];
  for (int n = 0; n < kTokens; n++)
    for (int r = 0; r < kRegisters; r++)
      sum[n][r] = _mm256_load_ps(out + n * kTileRows + first + r * kLanes);
#pragma GCC unroll 1
  for (int part = 0; part < num_parts; part++) {
    multiply_part<kKind, kTokens, kRegisters>(tile, first, part, tokens, sum);
    ahead.advance();
  }
  for (int n = 0; n < kTokens; n++)
    for (int r = 0; r < kRegisters; r++)
      _mm256_store_ps(out + n * kTileRows + first + r * kLanes, sum[n][r]);
}

// out[n][32] += tile . block `block` of token n, over the first `num_parts` parts
template <TileKind kKind, int kTokens>
[[gnu::noinline]] void multiply(const Tile& tile, int num_parts, const void* const* tokens,
                                int block, float* out, ReadAhead& ahead) {
  constexpr int kRegisters = kTokens == 1 ? 4 : 2;
  TokenBlock<kKind> blocks[kTokens];
  for (int n = 0; n < kTokens; n++) blocks[n].set(static_cast<const Activation*>(tokens[n])[block]);
  for (int first = 0; first < kTileRows; first += kRegisters * kLanes)
    multiply_rows<kKind, kTokens, kRegisters>(tile, first, num_parts, blocks, out, ahead);
}

}  // namespace sharpi::avx2
