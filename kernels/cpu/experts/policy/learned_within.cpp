// The scores of learned_within.h.
#include "learned_within.h"

#include <algorithm>

namespace sharpi {

LearnedWithin::LearnedWithin(const PolicySettings& settings,
                             const std::vector<LearnedSource>& sources,
                             const std::vector<float>& rank_weights, float rate, bool follows_text)
    : sources_(sources),
      rank_weights_(rank_weights),
      num_experts_(settings.num_experts),
      newest_(settings.num_layers),
      scored_(settings.num_layers),
      inputs_before_(settings.num_layers) {
  const int num_sources = int(sources_.size());
  const int num_hashed = follows_text ? LearnedContexts::num_rows(num_experts_) : 0;
  if (follows_text) contexts_.emplace(settings, num_sources * num_experts_, 0);
  for (int layer = 0; layer < settings.num_layers; layer++)
    maps_.emplace_back(num_sources, num_experts_, rate, kFirstOfItself, follows_text, num_hashed);
}

void LearnedWithin::gather(int layer) {
  inputs_.clear();
  for (size_t s = 0; s < sources_.size(); s++) {
    const int from = sources_[s].layer + (sources_[s].is_absolute ? 0 : layer);
    if (from < 0 || from >= int(newest_.size())) continue;
    const std::vector<int32_t>& experts = newest_[from];
    for (size_t rank = 0; rank < std::min(experts.size(), rank_weights_.size()); rank++)
      inputs_.push_back({int(s) * num_experts_ + experts[rank], rank_weights_[rank]});
  }
  if (contexts_) contexts_->append(layer, newest_, newest_, inputs_);
}

void LearnedWithin::step(int layer, const int32_t* experts, int count) {
  std::vector<int32_t>& used = newest_[layer];
  used.assign(experts, experts + count);
  LearnedMap& map = maps_[layer];
  map.count(used.data(), count);
  gather(layer);
  map.score(inputs_);
  if (scored_[layer]) map.learn(inputs_before_[layer], used.data(), count);
  map.keep();
  inputs_before_[layer].swap(inputs_);
  scored_[layer] = 1;
}

void LearnedWithin::reset_sequence() {
  std::fill(scored_.begin(), scored_.end(), 0);
  for (std::vector<int32_t>& experts : newest_) experts.clear();
}

}  // namespace sharpi
