// The counting of predictor.h.
#include "predictor.h"

#include <algorithm>

namespace sharpi {

constexpr float kMostSeen = 256;
// the weight of the previous token's route, relative to that of the layer below
constexpr float kTokenWeight = 0.25f;

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

Predictor::Predictor(PredictorKind kind, int num_layers, int num_experts)
    : kind_(kind), num_experts_(num_experts), routes_(num_layers), scores_(num_experts) {
  if (kind != PredictorKind::LastToken) after_layer_.assign(num_layers, FollowCounts(num_experts));
  if (kind == PredictorKind::Both) after_token_.assign(num_layers, FollowCounts(num_experts));
}

void Predictor::reset_sequence() {
  for (std::vector<int32_t>& route : routes_) route.clear();
}

void Predictor::observe(int layer, const int32_t* experts, int count) {
  if (!after_layer_.empty()) after_layer_[layer].observe(below(layer), experts, count);
  if (!after_token_.empty()) after_token_[layer].observe(routes_[layer], experts, count);
  routes_[layer].assign(experts, experts + count);
}

int Predictor::predict(int layer, int budget, int32_t* experts) {
  if (kind_ == PredictorKind::LastToken) {
    const int count = std::min(budget, int(routes_[layer].size()));
    std::copy_n(routes_[layer].begin(), count, experts);
    return count;
  }
  std::fill(scores_.begin(), scores_.end(), 0.f);
  after_layer_[layer].score(below(layer), 1, scores_);
  if (!after_token_.empty()) after_token_[layer].score(routes_[layer], kTokenWeight, scores_);
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
