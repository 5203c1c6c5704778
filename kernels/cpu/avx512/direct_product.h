// A few tokens meet the weights in the registers that unpacking leaves: what decode is made of.
//
// The sums are those of a tile (tile.h), in the same order, so the bits are the same; what falls away
// is writing a tile and reading it back.
#pragma once
#include "../read_ahead.h"
#include "token_block.h"
#include "transpose.h"

namespace sharpi::avx512 {
namespace {

// More tokens than this are served better by a tile, which is unpacked once for all of them.
constexpr int kDirectTokens = 3;

// sums += w . the same four activations for all rows, which the instruction broadcasts itself
[[gnu::always_inline]] inline void add_products(Ints& sums, Ints w, const int8_t* activations) {
  const int& four = *reinterpret_cast<const int*>(activations);
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sums) : "v"(w), "m"(four));
}

// 16 rows of 256 columns against kTokens; takes unpacked weights in any order of parts.
template <TileKind kKind, int kTokens>
struct DirectHalf {
  const TokenBlock<kKind>* tokens;
  ReadAhead& ahead;
  Floats scales[kMaxGroups], offsets[kMaxGroups], parts[kTokens][kParts];

  DirectHalf(const TokenBlock<kKind>* tokens, ReadAhead& ahead) : tokens(tokens), ahead(ahead) {}

  void scale(int group, Floats x) { scales[group] = x; }
  void offset(int group, Floats x) { offsets[group] = x; }

  // 32 columns from 32 * part; scale() of their groups came before
  [[gnu::always_inline]] void weights(int part, const Ints w[8]) {
    constexpr int kGroups = kKind.part_groups(), kSteps = 8 / kGroups;
    for (int n = 0; n < kTokens; n++) {
      for (int j = 0; j < kGroups; j++) {
        const int group = part * kGroups + j;
        Ints even = tokens[n].begin(group), odd = zero();  // two chains: one would wait for itself
        for (int k = j * kSteps; k < (j + 1) * kSteps; k += 2) {
          add_products(even, w[k], tokens[n].q + 32 * part + 4 * k);
          add_products(odd, w[k + 1], tokens[n].q + 32 * part + 4 * k + 4);
        }
        const Floats x = to_float(_mm512_add_epi32(even, odd));
        parts[n][part] = j ? _mm512_fmadd_ps(x, scales[group], parts[n][part])
                           : _mm512_mul_ps(x, scales[group]);
      }
    }
    ahead.advance();
  }

};

// Adds the parts of both halves, in order, to the 32 sums of each token: two chains of additions at a time.
template <TileKind kKind, int kTokens>
[[gnu::always_inline]] inline void add_parts(const DirectHalf<kKind, kTokens> halves[kHalves],
                                             int num_parts, float* out) {
  constexpr int kGroups = kKind.part_groups();
  for (int n = 0; n < kTokens; n++) {
    const TokenBlock<kKind>& token = halves[0].tokens[n];
    Floats sum[kHalves];
    for (int h = 0; h < kHalves; h++) sum[h] = _mm512_load_ps(out + n * kTileRows + h * kLanes);
    for (int part = 0; part < num_parts; part++) {
      if (kKind.has_offsets)
        for (int g = part * kGroups; g < (part + 1) * kGroups; g++)
          for (int h = 0; h < kHalves; h++)
            sum[h] = _mm512_fmadd_ps(_mm512_set1_ps(token.sum[g]), halves[h].offsets[g], sum[h]);
      for (int h = 0; h < kHalves; h++)
        sum[h] = _mm512_fmadd_ps(halves[h].parts[n][part], _mm512_set1_ps(token.scale[part]), sum[h]);
    }
    for (int h = 0; h < kHalves; h++) _mm512_store_ps(out + n * kTileRows + h * kLanes, sum[h]);
  }
}

template <class Unpack>
constexpr size_t bytes_of_256() {
  return 256 / Unpack::kBlockColumns * Unpack::kBlockBytes;
}

// out[n][32] += 32 rows . token n, block after block
template <class Unpack, int kTokens>
[[gnu::noinline]] void multiply_direct(Rows rows, int parts, const void* const* tokens, float* out,
                                       ReadAhead ahead) {
  for (int block = 0; parts > 0; block++, parts -= kParts, rows = rows + bytes_of_256<Unpack>()) {
    const int num_parts = Unpack::kBlockColumns == 256 || parts > kParts ? kParts : parts;
    TokenBlock<Unpack::kKind> token[kTokens];
    for (int n = 0; n < kTokens; n++) token[n].set(tokens[n], block);
    DirectHalf<Unpack::kKind, kTokens> halves[kHalves] = {{token, ahead}, {token, ahead}};
    for (int h = 0; h < kHalves; h++)
      Unpack::unpack(rows.from(h * kLanes), num_parts, halves[h]);
    add_parts(halves, num_parts, out);
  }
}

}  // namespace
}  // namespace sharpi::avx512
