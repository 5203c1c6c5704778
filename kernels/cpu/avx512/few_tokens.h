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
  const int8_t* q[kTokens];
  GroupSums<kKind> groups[kTokens];
  Ints product[kTokens][kMaxGroups];
  alignas(64) float scales[kMaxGroups][kLanes], offsets[kMaxGroups][kLanes];

  void scale(int group, Floats x) { _mm512_store_ps(scales[group], x); }
  void offset(int group, Floats x) { _mm512_store_ps(offsets[group], x); }
  // 32 columns from 32 * part
  void weights(int part, const Ints w[8]) {
    constexpr int kSteps = kKind.group_columns / 4;
    for (int n = 0; n < kTokens; n++)
      for (int first = 0; first < 8; first += kSteps) {
        const int group = (8 * part + first) / kSteps;
        Ints p = groups[n].begin(group);
        for (int k = first; k < first + kSteps; k++)
          p = _mm512_dpbusd_epi32(p, w[k], dwords(load_dword(q[n] + 32 * part + 4 * k)));
        product[n][group] = p;
      }
  }
  Floats sum(int n, int num_groups) const {
    Floats total = _mm512_setzero_ps();
    for (int g = 0; g < num_groups; g++)
      total = add_group<kKind>(total, product[n][g], scales[g], offsets[g], groups[n].sum[g]);
    return total;
  }
};

// out[n][32] += 32 rows of blocks . block `block` of token n
template <class Unpack, int kTokens>
[[gnu::noinline]] void multiply_few(Rows rows, int num_groups, const void* const* tokens, int block,
                                    float* out, Prefetch& ahead) {
  TokenSink<Unpack::kKind, kTokens> sink;
  for (int n = 0; n < kTokens; n++) {
    sink.q[n] = block_of(tokens[n], block).q;
    sink.groups[n].set(block_of(tokens[n], block));
  }
#pragma GCC unroll 1
  for (int h = 0; h < kHalves; h++) {
    Unpack::unpack(rows.from(h * kLanes), num_groups, sink);
    for (int n = 0; n < kTokens; n++)
      add_block(out + n * kTileRows + h * kLanes, sink.sum(n, num_groups),
                block_of(tokens[n], block).scale);
    ahead.advance();
  }
}

}  // namespace sharpi::avx512
