// The counting of predictor.h.
#include "predictor.h"

#include <algorithm>

namespace sharpi {

void FollowCounts::observe(const std::vector<int32_t>& before, const int32_t* experts, int count) {
  for (int32_t from : before) {
    float* row = counts_.data() + size_t(from) * num_experts_;
    for (int i = 0; i < count; i++) row[experts[i]] += 1;
    seen_[from] += 1;
    if (seen_[from] < kMostSeen) continue;
    seen_[from] *= 0.5f;
    for (int e = 0; e < num_experts_; e++) row[e] *= 0.5f;
  }
}

void FollowCounts::score(const std::vector<int32_t>& before, float weight,
                         std::vector<float>& scores) const {
  for (size_t rank = 0; rank < before.size(); rank++) {
    const int32_t from = before[rank];
    if (seen_[from] == 0) continue;
    const float scale = weight / float(rank + 1) / seen_[from];
    const float* row = counts_.data() + size_t(from) * num_experts_;
    for (int e = 0; e < num_experts_; e++) scores[e] += scale * row[e];
  }
}

void UseCounts::observe(const int32_t* experts, int count) {
  for (int i = 0; i < count; i++) counts_[experts[i]] += 1;
  if (++seen_ < kMostSeen) return;
  seen_ *= 0.5f;
  for (float& uses : counts_) uses *= 0.5f;
}

void UseCounts::score(std::vector<float>& scores) const {
  std::copy(counts_.begin(), counts_.end(), scores.begin());
}

Predictor::Predictor(PredictorKind kind, int num_layers, int num_experts)
    : kind_(kind), num_layers_(num_layers), num_experts_(num_experts), scores_(num_experts) {
  const bool follows_layer = kind == PredictorKind::LastLayer || kind == PredictorKind::Both;
  if (follows_layer) after_layer_.assign(num_layers, FollowCounts(num_experts));
  if (kind == PredictorKind::Both) after_token_.assign(num_layers, FollowCounts(num_experts));
  if (kind == PredictorKind::Frequency) uses_.assign(num_layers, UseCounts(num_experts));
  hold_sequences(1);
}

void Predictor::hold_sequences(int count) {
  if (int(routes_.size()) < count) routes_.resize(count, Routes(num_layers_));
}

void Predictor::reset_sequence(int sequence) {
  for (std::vector<int32_t>& route : routes_[sequence]) route.clear();
}

void Predictor::observe(int layer, const int32_t* experts, int count, int sequence) {
  Routes& routes = routes_[sequence];
  if (!after_layer_.empty()) after_layer_[layer].observe(below(routes, layer), experts, count);
  if (!after_token_.empty()) after_token_[layer].observe(routes[layer], experts, count);
  if (!uses_.empty()) uses_[layer].observe(experts, count);
  routes[layer].assign(experts, experts + count);
}

void Predictor::observe_prompt(int layer, const int32_t* experts, int count) {
  if (!uses_.empty()) uses_[layer].observe(experts, count);
}

void Predictor::score(int layer, const Routes& routes) {
  std::fill(scores_.begin(), scores_.end(), 0.f);
  if (!after_layer_.empty()) after_layer_[layer].score(below(routes, layer), 1, scores_);
  if (!after_token_.empty()) after_token_[layer].score(routes[layer], kTokenWeight, scores_);
  if (!uses_.empty()) uses_[layer].score(scores_);
}

int Predictor::predict(int layer, int budget, int32_t* experts, int sequence) {
  const Routes& routes = routes_[sequence];
  if (kind_ == PredictorKind::LastToken) {
    const int count = std::min(budget, int(routes[layer].size()));
    std::copy_n(routes[layer].begin(), count, experts);
    return count;
  }
  score(layer, routes);
  order_.clear();
  for (int e = 0; e < num_experts_; e++)
    if (scores_[e] > 0) order_.push_back(e);
  const int count = std::min(budget, int(order_.size()));
  std::partial_sort(order_.begin(), order_.begin() + count, order_.end(), [&](int a, int b) {
    return scores_[a] != scores_[b] ? scores_[a] > scores_[b] : a < b;
  });
  std::copy_n(order_.begin(), count, experts);
  return count;
}

}  // namespace sharpi
