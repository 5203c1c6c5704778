// The orthonormal Hadamard transform, which spreads a large number among its block: quantised keys
// and values lose less then. It is its own inverse, and keeps products of two transformed rows.
// Internal linkage: compiled with different target flags.
#pragma once
#include <cmath>

#include "vector/simd.h"

namespace {

// Computes sums and differences of lanes whose number differs in the bit kStep.
template <int kStep>
[[gnu::always_inline]] inline F32x16 butterfly(F32x16 x) {
  if constexpr (kStep >= kOwnLanes) {
    constexpr int kParts = kStep / kOwnLanes;
    return each_part([&](int i) {
      return i & kParts ? x.part[i - kParts] - x.part[i] : x.part[i] + x.part[i + kParts];
    });
  } else {
    Own signs;
    for (int l = 0; l < kOwnLanes; l++) signs[l] = l & kStep ? -1.f : 1.f;
    return each_part([&](int i) {
      const Own other = shuffled(x.part[i], x.part[i], [](int lane) { return lane ^ kStep; });
      return other + x.part[i] * signs;
    });
  }
}

// out = the transform of each block of `block` numbers, a power of two from 16 on; x, out (n): may
// be the same.
void rotate(const float* x, float* out, int n, int block) {
  const float norm = 1.f / std::sqrt(float(block));
  for (int i = 0; i < n; i += kLanes)
    store(out + i, butterfly<8>(butterfly<4>(butterfly<2>(butterfly<1>(load(x + i) * norm)))));
  for (int step = kLanes; step < block; step *= 2)
    for (int i = 0; i < n; i += kLanes) {
      if (i & step) continue;
      const F32x16 low = load(out + i), high = load(out + i + step);
      store(out + i, low + high), store(out + i + step, low - high);
    }
}

}  // namespace
