// Chooses the keys that the last queries of a prompt use most: SnapKV's rule (Li et al., 2024,
// arXiv 2404.14469). tests/ops/reference_attention.py is the same in NumPy.
#pragma once
#include <algorithm>
#include <numeric>
#include <vector>

#include "attend_span.h"
#include "vector/simd.h"

namespace {
using namespace sharpi;

constexpr int kKeepWindow = 32;  // the last queries, whose keys are all kept
constexpr int kKeepPool = 3;     // a key is worth as much as the best of so many on either side

// Adds a query's probabilities, from its scores, to `weights`, which begin with the slots before
// the window. `end`: the slots that it sees.
inline void add_probabilities(float* scores, int end, float soft_cap, std::vector<float>& weights) {
  float peak = -INFINITY, total = 0;
  for (int i = 0; i < end; i++) {
    if (soft_cap > 0) scores[i] = soft_cap * std::tanh(scores[i] / soft_cap);
    peak = std::max(peak, scores[i]);
  }
  const int padded = (end + kLanes - 1) / kLanes * kLanes;
  for (int i = end; i < padded; i++) scores[i] = -INFINITY;
  for (int i = 0; i < padded; i += kLanes) {
    const F32x16 p = exp(load(scores + i) - peak);
    store(scores + i, p);
    total += sum(p);
  }
  const float inverse = 1.f / total;
  if (!std::isfinite(inverse)) return;  // a NaN has no order
  for (size_t i = 0; i < weights.size(); i++) weights[i] += scores[i] * inverse;
}

// Returns, for each weight, the largest within kKeepPool of it.
inline std::vector<float> pooled(const std::vector<float>& weights) {
  const int count = int(weights.size());
  std::vector<float> out(weights.size());
  for (int i = 0; i < count; i++)
    out[i] = *std::max_element(weights.begin() + std::max(0, i - kKeepPool),
                               weights.begin() + std::min(count, i + kKeepPool + 1));
  return out;
}

// Returns the `count` slots of largest weight in ascending order; ties go to the lower slot.
inline std::vector<int> heaviest(const std::vector<float>& weights, int count) {
  std::vector<int> slots(weights.size());
  std::iota(slots.begin(), slots.end(), 0);
  std::nth_element(slots.begin(), slots.begin() + count, slots.end(), [&](int a, int b) {
    return weights[a] > weights[b] || (weights[a] == weights[b] && a < b);
  });
  slots.resize(count);
  std::sort(slots.begin(), slots.end());
  return slots;
}

}  // namespace
