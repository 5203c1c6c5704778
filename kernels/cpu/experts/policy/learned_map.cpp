// The arithmetic of learned_map.h.
#include "learned_map.h"

#include <algorithm>

// AVX2 alone has no fused multiply-add, so every version rounds alike.
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__)
#define SHARPI_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define SHARPI_WIDE
#endif

namespace sharpi {
namespace {

constexpr float kDiscount = 0.8f, kBiasRate = 0.003f, kFirstBias = 0.1f;

SHARPI_WIDE void add_scaled(float* y, const float* x, float a, size_t n) {
  for (size_t i = 0; i < n; i++) y[i] += a * x[i];
}

}  // namespace

LearnedMap::LearnedMap(int num_sources, int num_experts, float rate)
    : num_experts_(num_experts),
      stride_((size_t(num_experts) + 15) / 16 * 16),
      rate_(rate),
      weights_(size_t(num_sources) * num_experts * stride_),
      bias_(stride_, kFirstBias),
      scores_(stride_),
      previous_(stride_),
      error_(stride_) {}

void LearnedMap::score(const std::vector<MapInput>& inputs) {
  scores_ = bias_;
  for (const MapInput& in : inputs)
    add_scaled(scores_.data(), weights_.data() + in.row * stride_, in.weight, stride_);
}

void LearnedMap::learn(const std::vector<MapInput>& inputs, const int* used, int num_used) {
  for (int e = 0; e < num_experts_; e++)
    error_[e] = kDiscount * std::min(1.f, std::max(0.f, scores_[e]));
  for (int i = 0; i < num_used; i++) error_[used[i]] = 1;
  for (int e = 0; e < num_experts_; e++) error_[e] -= previous_[e];
  add_scaled(bias_.data(), error_.data(), kBiasRate, stride_);
  for (const MapInput& in : inputs)
    add_scaled(weights_.data() + in.row * stride_, error_.data(), rate_ * in.weight, stride_);
}

}  // namespace sharpi
