// The product with one to four tokens: weights meet them as they are unpacked, and no tile is
// written.
//
// Integer sums are exact and floats are added as for a tile, so the results are the same bits.
#pragma once
#include "group_sums.h"
#include "prefetch.h"
#include "transpose.h"

namespace sharpi::avx512 {

constexpr int kFewTokens = 4;

// Where unpacked weights go: 16 rows, against one block of each token.
template <TileKind kKind, int kTokens>
struct TokenSink {
  TokenBlock<kKind> token[kTokens];
  Ints product[kTokens][kMaxGroups];
  alignas(64) float scales[kMaxGroups][kLanes], offsets[kMaxGroups][kLanes];

  void scale(int group, Floats x) { _mm512_store_ps(scales[group], x); }
  void offset(int group, Floats x) { _mm512_store_ps(offsets[group], x); }
  // 32 columns from 32 * part
  void weights(int part, const Ints w[8]) {
    constexpr int kSteps = kKind.group_columns / 4;
    for (int n = 0; n < kTokens; n++)
      for (int j = 0; j < kKind.part_groups(); j++) {
        const int group = part * kKind.part_groups() + j;
        const int8_t* q = token[n].q + group * kKind.group_columns;
        Ints p = token[n].begin(group);
        for (int k = 0; k < kSteps; k++)
          p = _mm512_dpbusd_epi32(p, w[j * kSteps + k], dwords(load_dword(q + 4 * k)));
        product[n][group] = p;
      }
  }
  // out[16] += the products of all parts
  void finish(int n, int num_parts, float* out) const {
    Floats sum = _mm512_load_ps(out), part;
    for (int i = 0; i < num_parts; i++) {
      for (int j = 0; j < kKind.part_groups(); j++) {
        const int g = i * kKind.part_groups() + j;
        add_group<kKind>(part, sum, product[n][g], j, g, scales[g], offsets[g], token[n]);
      }
      add_part<kKind>(sum, part, i, token[n]);
    }
    _mm512_store_ps(out, sum);
  }
};

// out[n][32] += 32 rows of blocks . block `block` of token n
template <class Unpack, int kTokens>
[[gnu::noinline]] void multiply_few(Rows rows, int num_parts, const void* const* tokens, int block,
                                    float* out, Prefetch& ahead) {
  TokenSink<Unpack::kKind, kTokens> sink;
  for (int n = 0; n < kTokens; n++) sink.token[n].set(tokens[n], block);
#pragma GCC unroll 1
  for (int h = 0; h < kHalves; h++) {
    Unpack::unpack(rows.from(h * kLanes), num_parts, sink);
    for (int n = 0; n < kTokens; n++) sink.finish(n, num_parts, out + n * kTileRows + h * kLanes);
    ahead.advance();
  }
}

}  // namespace sharpi::avx512
