// A tile of decoded weights, 32 rows x 256 columns, and its product with a few tokens.
//
// It is the only kernel for int8 activations: one token or many, a token's floats are added in the
// same order, group after group.
#pragma once
#include <arm_neon.h>

#include <type_traits>

#include "quant/block_decode.h"
#include "runtime/read_ahead.h"

namespace sharpi::neon {
namespace {

constexpr int kLanes = 4;         // rows of a register
constexpr int kRegisters = 2;     // of rows, taken together
constexpr int kTokensAtOnce = 4;  // eight integer and eight float sums, in 32 registers
constexpr int kGroups = 16;       // of 16 columns

// weight = scale * w - min
struct alignas(64) Tile {
  int8_t w[64][kTileRows / kLanes][16];  // [column / 4][row / 4][4 rows x 4 columns]
  float scale[kGroups][kTileRows];
  float min[kGroups][kTileRows];

  void set_row(int r, const RowBlock& row) {
    for (int step = 0; step < 64; step++)
      memcpy(w[step][r / kLanes] + 4 * (r % kLanes), row.q + 4 * step, 4);
    for (int g = 0; g < kGroups; g++) {
      scale[g][r] = row.scale[g];
      min[g][r] = row.min[g];
    }
  }
};

// Computes sum + w . x for 4 rows and the 4 columns in lane kLane of x. sdot is newer than the
// baseline, so it is written as assembly, for CPUs that were found to have it.
struct Sdot {
  template <int kLane>
  static int32x4_t multiply(int32x4_t sum, int8x16_t w, int8x16_t x) {
    asm(".arch armv8.2-a+dotprod\n\tsdot %0.4s, %1.16b, %2.4b[%3]"
        : "+w"(sum)
        : "w"(w), "w"(x), "i"(kLane));
    return sum;
  }
};
struct WidenedProducts {
  template <int kLane>
  static int32x4_t multiply(int32x4_t sum, int8x16_t w, int8x16_t x) {
    const int8x16_t four = vreinterpretq_s8_s32(vdupq_laneq_s32(vreinterpretq_s32_s8(x), kLane));
    const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(four));
    const int16x8_t high = vmull_high_s8(w, four);
    return vaddq_s32(sum, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
  }
};

// Computes the integer products of one group, for kRegisters * 4 rows.
template <class Dot, int kTokens>
inline void multiply_group(const int8_t (*w)[kTileRows / kLanes][16], int first,
                           const Activation* const* tokens, int group, int32x4_t p[][kRegisters]) {
  int8x16_t x[kTokens];
  for (int n = 0; n < kTokens; n++) {
    x[n] = vld1q_s8(tokens[n]->q + 16 * group);
    for (int r = 0; r < kRegisters; r++) p[n][r] = vdupq_n_s32(0);
  }
  const auto step = [&]<int kLane>(std::integral_constant<int, kLane>) {
    for (int r = 0; r < kRegisters; r++) {
      const int8x16_t weights = vld1q_s8(w[kLane][first / kLanes + r]);
      for (int n = 0; n < kTokens; n++)
        p[n][r] = Dot::template multiply<kLane>(p[n][r], weights, x[n]);
    }
  };
  step(std::integral_constant<int, 0>());
  step(std::integral_constant<int, 1>());
  step(std::integral_constant<int, 2>());
  step(std::integral_constant<int, 3>());
}

// Computes sum + activation scale * (scale * p - min * sum of the group's activations).
inline float32x4_t add_group(float32x4_t sum, int32x4_t p, const float* scale, const float* min,
                             const Activation& a, int group) {
  float32x4_t value = vmulq_f32(vcvtq_f32_s32(p), vld1q_f32(scale));
  value = vfmsq_n_f32(value, vld1q_f32(min), float(a.sum16[group]));
  return vfmaq_n_f32(sum, value, a.scale[group / 2]);
}

// Computes out[n][32] += tile . block `block` of token n, over the first `num_groups` groups.
template <class Dot, int kTokens>
[[gnu::noinline]] void multiply(const Tile& tile, int num_groups, const void* const* tokens,
                                int block, float* out, ReadAhead& ahead) {
  const Activation* activations[kTokens];
  for (int n = 0; n < kTokens; n++)
    activations[n] = static_cast<const Activation*>(tokens[n]) + block;
  for (int first = 0; first < kTileRows; first += kRegisters * kLanes) {
    float32x4_t sum[kTokens][kRegisters];
    for (int n = 0; n < kTokens; n++)
      for (int r = 0; r < kRegisters; r++)
        sum[n][r] = vld1q_f32(out + n * kTileRows + first + r * kLanes);
    for (int g = 0; g < num_groups; g++) {
      int32x4_t p[kTokens][kRegisters];
      multiply_group<Dot, kTokens>(tile.w + 4 * g, first, activations, g, p);
      for (int n = 0; n < kTokens; n++)
        for (int r = 0; r < kRegisters; r++) {
          const int row = first + r * kLanes;
          sum[n][r] = add_group(sum[n][r], p[n][r], tile.scale[g] + row, tile.min[g] + row,
                                *activations[n], g);
        }
      ahead.advance();
    }
    for (int n = 0; n < kTokens; n++)
      for (int r = 0; r < kRegisters; r++)
        vst1q_f32(out + n * kTileRows + first + r * kLanes, sum[n][r]);
  }
}

}  // namespace
}  // namespace sharpi::neon
