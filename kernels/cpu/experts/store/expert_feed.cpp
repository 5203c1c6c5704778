#include "expert_feed.h"

#include <algorithm>
#include <numeric>

namespace sharpi {
namespace {

constexpr int kUsesOfAll = 2;  // routes per expert in a batch that probably uses all experts
// A read that is never used costs memory bandwidth and CPU time: where fewer than kLeastWorth of
// the prefetches are used, predictions stop but for a probe step now and then, ever more seldom, to
// see whether that has changed.
constexpr float kLeastWorth = 0.25f, kWorthRate = 1.f / 32;
constexpr int kFirstProbe = 16, kLastProbe = 1024;  // steps between two probes

}  // namespace

ExpertFeed::ExpertFeed(ExpertStore& store, std::unique_ptr<Predictor> predictor, int budget,
                       bool asks_router)
    : store_(store),
      predictor_(std::move(predictor)),
      budget_(budget),
      max_staging_(std::min(store.max_group(), store.experts_per_token())),
      asks_router_(asks_router),
      next_(store.num_layers(), -1),
      predicted_(store.num_layers()),
      prefetched_(store.num_layers()) {
  int first = -1;
  for (int layer = 0, before = -1; layer < store.num_layers(); layer++) {
    if (!store.num_experts(layer)) continue;
    if (before >= 0) next_[before] = layer;
    else first = layer;
    before = last_layer_ = layer;
  }
  if (last_layer_ >= 0) next_[last_layer_] = first;
}

void ExpertFeed::acquire(int layer, const int32_t* routes, int tokens, int k, StepKind kind) {
  if (has_failed() || !tokens) return;
  store_.acquire(layer, routes, tokens, k, kind == StepKind::Batch);
  if (kind != StepKind::Token) {
    predicted_[layer].clear(), prefetched_[layer].clear();
    if (predicts_ && tokens * k >= kUsesOfAll * store_.num_experts(layer))
      predict_all(next_[layer]);
    return;
  }
  judge(layer, routes, k);
  if (!predictor_) return;
  predictor_->observe(layer, routes, k);
  const bool knows_better = asks_router_ && layer != last_layer_;
  if (predicts_ && !knows_better) predict(next_[layer]);
}

void ExpertFeed::judge(int layer, const int32_t* experts, int count) {
  const auto is_used = [&](int32_t e) {
    return std::find(experts, experts + count, e) != experts + count;
  };
  std::vector<int32_t>& predicted = predicted_[layer];
  if (predicted.empty()) return;
  counts_.predicted += int64_t(predicted.size()), counts_.used += count;
  for (int32_t e : predicted) counts_.right += is_used(e);
  for (int32_t e : prefetched_[layer]) worth_ += (float(is_used(e)) - worth_) * kWorthRate;
  predicted.clear(), prefetched_[layer].clear();
}

void ExpertFeed::predict(int layer) {
  ids_.resize(budget_);
  const int count = predictor_->predict(layer, budget_, ids_.data());
  predict_routes(layer, ids_.data(), count);
}

// Prefetches all experts, in the order of their ids: a large batch uses nearly all of them.
void ExpertFeed::predict_all(int layer) {
  ids_.resize(store_.num_experts(layer));
  std::iota(ids_.begin(), ids_.end(), 0);
  std::vector<int32_t> begun;
  store_.prefetch(layer, ids_.data(), int(ids_.size()), begun);
}

void ExpertFeed::predict_routes(int layer, const int32_t* experts, int count) {
  if (!predicts_ || has_failed()) return;
  predicted_[layer].assign(experts, experts + count);
  prefetched_[layer].clear();
  store_.prefetch(layer, experts, count, prefetched_[layer]);
}

bool ExpertFeed::begin_step(bool may_predict) {
  if (worth_ >= kLeastWorth) probe_every_ = kFirstProbe, until_probe_ = kFirstProbe;
  const bool is_probe = until_probe_-- <= 0;
  if (is_probe) until_probe_ = probe_every_ = std::min(kLastProbe, 2 * probe_every_);
  predicts_ = may_predict && predictor_ && (worth_ >= kLeastWorth || is_probe);
  return predicts_;
}

bool ExpertFeed::wait(int layer, int expert) {
  const bool is_there = store_.wait(layer, expert);
  if (!is_there) failed_.store(true, std::memory_order_relaxed);
  return is_there;
}

void ExpertFeed::release(int layer) {
  store_.release(layer);
  if (layer == last_layer_) store_.end_token();
}

void ExpertFeed::reset_sequence() {
  store_.reset_sequence();
  if (predictor_) predictor_->reset_sequence();
  for (std::vector<int32_t>& predicted : predicted_) predicted.clear();
  for (std::vector<int32_t>& prefetched : prefetched_) prefetched.clear();
}

}  // namespace sharpi
