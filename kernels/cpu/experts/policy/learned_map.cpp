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

SHARPI_WIDE void add_scaled(float* y, const float* x, float a, size_t n) {
  for (size_t i = 0; i < n; i++) y[i] += a * x[i];
}

SHARPI_WIDE void fade_and_add(float* y, const float* x, float a, size_t n) {
  for (size_t i = 0; i < n; i++) y[i] = kKeptOfFading * y[i] + a * x[i];
}

}  // namespace

LearnedMap::LearnedMap(int num_sources, int num_experts, float rate, float of_itself,
                       bool follows_text, int num_hashed)
    : num_experts_(num_experts),
      first_hashed_(num_sources * num_experts),
      stride_((size_t(num_experts) + 15) / 16 * 16),
      rate_(rate),
      weights_((size_t(first_hashed_) + num_hashed) * stride_),
      bias_(stride_, kFirstBias),
      scores_(stride_),
      previous_(stride_),
      error_(stride_),
      fading_(follows_text ? first_hashed_ * stride_ : 0),
      recent_(follows_text, stride_),
      times_learned_(num_hashed) {
  for (int e = 0; e < num_experts; e++) weights_[size_t(e) * stride_ + e] = of_itself;
}

void LearnedMap::score(const std::vector<MapInput>& inputs) {
  scores_ = bias_;
  recent_.add_to(scores_.data());
  for (const MapInput& in : inputs) {
    add_scaled(scores_.data(), weights_.data() + in.row * stride_, in.weight, stride_);
    if (fades(in))
      add_scaled(scores_.data(), fading_.data() + in.row * stride_, in.weight, stride_);
  }
}

void LearnedMap::learn(const std::vector<MapInput>& inputs, const int* used, int num_used) {
  for (int e = 0; e < num_experts_; e++)
    error_[e] = kDiscount * std::min(1.f, std::max(0.f, scores_[e]));
  for (int i = 0; i < num_used; i++) error_[used[i]] = 1;
  follow_error(inputs);
}

void LearnedMap::learn_worth(const std::vector<MapInput>& inputs, const int* used, int num_used,
                             float threshold, float most) {
  for (int e = 0; e < num_experts_; e++)
    error_[e] = std::min(most, std::max(0.f, scores_[e] - threshold));
  for (int i = 0; i < num_used; i++) error_[used[i]] += 1;
  follow_error(inputs);
}

// Turns the aim in error_ into the error of the previous scores, and learns from it.
void LearnedMap::follow_error(const std::vector<MapInput>& inputs) {
  for (int e = 0; e < num_experts_; e++) error_[e] -= previous_[e];
  add_scaled(bias_.data(), error_.data(), kBiasRate, stride_);
  recent_.follow(error_.data());
  for (const MapInput& in : inputs) {
    const float step = step_size(in);
    add_scaled(weights_.data() + in.row * stride_, error_.data(), step, stride_);
    if (fades(in)) fade_and_add(fading_.data() + in.row * stride_, error_.data(), step, stride_);
  }
}

float LearnedMap::step_size(const MapInput& input) {
  if (input.row < first_hashed_) return rate_ * input.weight;
  float& times = times_learned_[input.row - first_hashed_];
  const float more = kFirstRate / (1 + times / kNewUntil);
  times += 1;
  return kHashedRate * rate_ * (kLastingRate + more);
}

}  // namespace sharpi
