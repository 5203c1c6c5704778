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
// Until that many of the latest prefetches were used, those that are not used stay within a small
// share of the misses, and a few experts of each layer.
constexpr float kProvenWorth = 0.5f, kWasteOfMisses = 0.08f, kWasteOfLayer = 2.f;

}  // namespace

ExpertFeed::ExpertFeed(ExpertStore& store, std::unique_ptr<Predictor> predictor, int budget,
                       bool uses_router)
    : store_(store),
      predictor_(std::move(predictor)),
      budget_(budget),
      max_staging_(std::min(store.max_group(), store.experts_per_token())),
      uses_router_(uses_router),
      next_(store.num_layers(), -1),
      predicted_(store.num_layers()),
      prefetched_(store.num_layers()) {
  int first = -1;
  for (int layer = 0, before = -1; layer < store.num_layers(); layer++) {
    if (!store.num_experts(layer)) continue;
    if (before >= 0) next_[before] = layer;
    else first = layer;
    before = last_layer_ = layer;
    most_waste_ += kWasteOfLayer;
  }
  waste_left_ = most_waste_;
  if (last_layer_ >= 0) next_[last_layer_] = first;
}

void ExpertFeed::acquire(int layer, const int32_t* routes, int tokens, int k, StepKind kind) {
  if (has_failed() || !tokens) return;
  note_requested(layer, routes, tokens, k);
  if (predictor_ && kind != StepKind::Batch) earn_waste(layer, routes, tokens * k);
  store_.acquire(layer, routes, tokens, k, kind == StepKind::Batch, phase(), requested_);
  if (kind == StepKind::Batch) {
    predicted_[layer].clear(), prefetched_[layer].clear();
    if (predicts_ && tokens * k >= kUsesOfAll * store_.num_experts(layer))
      predict_all(next_[layer]);
  } else {
    score_prediction(layer, routes, tokens * k);
  }
  if (!predictor_) return;
  learn(layer, routes, tokens, k, kind);
  const bool knows_better = uses_router_ && layer != last_layer_;
  if (predicts_ && kind <= StepKind::Tokens && !knows_better) predict(next_[layer]);
}

void ExpertFeed::earn_waste(int layer, const int32_t* experts, int count) {
  const auto is_missed = [&](int32_t e) { return !store_.is_ready(layer, e); };
  const auto misses = std::count_if(experts, experts + count, is_missed);
  waste_left_ = std::min(most_waste_, waste_left_ + kWasteOfMisses * float(misses));
}

// Notes the experts that other ranks have and that are in no buffer here; a free slot is filled
// first.
void ExpertFeed::note_requested(int layer, const int32_t* routes, int tokens, int k) {
  requested_.clear();
  if (!remote_ || tokens > remote_->max_tokens()) return;
  requested_.assign(store_.num_experts(layer), -1);
  bool has_requests = false;
  for (int i = 0; i < tokens * k; i++) {
    const int rank = remote_->rank_of(layer, routes[i]);
    if (rank < 0 || !store_.lacks(layer, routes[i])) continue;
    requested_[routes[i]] = int8_t(rank), has_requests = true;
  }
  if (!has_requests) requested_.clear();
}

void ExpertFeed::wait_for_ranks() {
  if (!requested_.empty() && !remote_->wait_for_replies())
    failed_.store(true, std::memory_order_relaxed);
}

void ExpertFeed::learn(int layer, const int32_t* routes, int tokens, int k, StepKind kind) {
  const bool knows_rows = kind <= StepKind::Tokens && tokens == int(histories_.size());
  for (int row = 0; row < tokens; row++) {
    const int32_t* route = routes + size_t(row) * k;
    if (knows_rows) predictor_->observe(layer, route, k, histories_[row]);
    else predictor_->observe_prompt(layer, route, k);
  }
}

// Compares the prediction with the experts that a step uses, of which some may repeat.
void ExpertFeed::score_prediction(int layer, const int32_t* experts, int count) {
  std::vector<int32_t>& predicted = predicted_[layer];
  if (predicted.empty()) return;
  const auto is_used = [&](int32_t e) {
    return std::find(experts, experts + count, e) != experts + count;
  };
  for (const int32_t* e = experts; e < experts + count; e++)
    counts_.used += std::find(experts, e, *e) == e;
  counts_.predicted += int64_t(predicted.size());
  for (int32_t e : predicted) counts_.right += is_used(e);
  for (int32_t e : prefetched_[layer]) {
    worth_ += (float(is_used(e)) - worth_) * kWorthRate;
    waste_left_ += is_used(e);
  }
  predicted.clear(), prefetched_[layer].clear();
}

// Predicts for all rows of the step, the likeliest of each first.
void ExpertFeed::predict(int layer) {
  std::vector<std::vector<int32_t>> rows;
  for (int history : histories_) {
    const int count = predict_row(layer, history);
    rows.emplace_back(likeliest_.begin(), likeliest_.begin() + count);
  }
  ids_.clear();
  for (int rank = 0; rank < budget_; rank++)
    for (const std::vector<int32_t>& row : rows) {
      const bool has_one = rank < int(row.size());
      if (has_one && std::find(ids_.begin(), ids_.end(), row[rank]) == ids_.end())
        ids_.push_back(row[rank]);
    }
  predict_routes(layer, ids_.data(), int(ids_.size()));
}

// Writes the likeliest experts for a row; of the most frequent ones only those that are not in
// memory, as the policy keeps many of them anyway.
int ExpertFeed::predict_row(int layer, int history) {
  const bool is_frequency = predictor_->kind() == PredictorKind::Frequency;
  const int num_asked = is_frequency ? store_.num_experts(layer) : budget_;
  likeliest_.resize(num_asked);
  int count = predictor_->predict(layer, num_asked, likeliest_.data(), history);
  if (is_frequency) {
    const auto end = std::remove_if(likeliest_.begin(), likeliest_.begin() + count,
                                    [&](int32_t e) { return store_.is_ready(layer, e); });
    count = std::min(budget_, int(end - likeliest_.begin()));
  }
  return count;
}

// Prefetches all experts, in the order of their ids: a large batch uses nearly all of them.
void ExpertFeed::predict_all(int layer) {
  ids_.resize(store_.num_experts(layer));
  std::iota(ids_.begin(), ids_.end(), 0);
  std::vector<int32_t> begun;
  store_.prefetch(layer, ids_.data(), int(ids_.size()), begun);
}

void ExpertFeed::predict_routes(int layer, const int32_t* experts, int count) {
  if (!predicts_ || has_failed() || !store_.num_experts(layer)) return;
  predicted_[layer].assign(experts, experts + count);
  prefetched_[layer].clear(), own_.clear();
  int left = worth_ >= kProvenWorth ? count : int(waste_left_);
  for (int i = 0; i < count && left > 0; i++) {
    // experts of other ranks are not read
    if (is_ready(layer, experts[i]) || (remote_ && remote_->rank_of(layer, experts[i]) >= 0))
      continue;
    own_.push_back(experts[i]), left--;
  }
  store_.prefetch(layer, own_.data(), int(own_.size()), prefetched_[layer]);
  waste_left_ = std::max(0.f, waste_left_ - float(prefetched_[layer].size()));
}

bool ExpertFeed::begin_step(bool may_predict, bool is_prompt) {
  is_prompt_ = is_prompt;
  if (worth_ >= kLeastWorth) probe_every_ = kFirstProbe, until_probe_ = kFirstProbe;
  const bool is_probe = until_probe_-- <= 0;
  if (is_probe) until_probe_ = probe_every_ = std::min(kLastProbe, 2 * probe_every_);
  predicts_ = may_predict && predictor_ && (worth_ >= kLeastWorth || is_probe);
  if (predictor_ && !is_prompt) counts_.steps++, counts_.predicted_steps += predicts_;
  return predicts_;
}

void ExpertFeed::set_sequences(const int32_t* sequences, const uint8_t* begins, int count) {
  histories_.clear();
  if (!predictor_) return;
  for (int row = 0; row < count; row++) {
    const int history = history_of(sequences[row], sequences, count);
    if (begins[row] || sequences_[history] != sequences[row]) predictor_->reset_sequence(history);
    sequences_[history] = sequences[row];
    histories_.push_back(history);
  }
}

// Returns the history of a sequence, or one of a sequence that is not present.
int ExpertFeed::history_of(int32_t sequence, const int32_t* present, int count) {
  const auto known = std::find(sequences_.begin(), sequences_.end(), sequence);
  if (known != sequences_.end()) return int(known - sequences_.begin());
  const auto is_free = [&](int32_t held) {
    return std::find(present, present + count, held) == present + count;
  };
  const auto free = std::find_if(sequences_.begin(), sequences_.end(), is_free);
  const int history = int(free - sequences_.begin());
  if (free == sequences_.end()) {
    sequences_.push_back(sequence);
    predictor_->hold_sequences(history + 1);
  }
  return history;
}

FeedCounts ExpertFeed::counts() const {
  FeedCounts counts = counts_;
  counts.is_worth_it = worth_ >= kLeastWorth;
  return counts;
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
  for (std::vector<int32_t>& predicted : predicted_) predicted.clear();
  for (std::vector<int32_t>& prefetched : prefetched_) prefetched.clear();
}

}  // namespace sharpi
