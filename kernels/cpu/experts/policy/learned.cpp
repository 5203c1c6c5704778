// The swaps of learned.h.
#include "learned.h"

#include <algorithm>

namespace sharpi {
namespace {

constexpr int kMoreWithin[kMoreLayersWithin] = {-2, -3, -4, 2, 3, -5, -6};

float step_size(double rate, size_t num_sources, int num_contexts, size_t k) {
  double energy = 0;
  for (size_t i = 0; i < k; i++) energy += 1.0 / (double(i + 1) * double(i + 1));
  return float(rate / (double(num_sources) * energy + num_contexts));
}

std::vector<LearnedSource> near_and_last(int end_layer, int num_last) {
  std::vector<LearnedSource> sources = {{false, 0, 0}, {false, -1, 0}, {false, 1, 0}};
  for (int i = num_last; i > 0; i--) sources.push_back({true, end_layer - i, 0});
  return sources;
}

bool has_few(const PolicySettings& settings) { return settings.num_experts <= kFewExperts; }

}  // namespace

Learned::Learned(const PolicySettings& settings)
    : SlotPolicy(settings),
      threshold_(settings.num_layers),
      scored_(settings.num_layers),
      batch_(settings.num_layers),
      ends_(settings.num_layers),
      gain_(settings.num_layers),
      loss_(settings.num_layers) {
  const int ranks = std::min(settings.experts_per_token, kRanks);
  for (int rank = 0; rank < ranks; rank++) rank_weights_.push_back(1.f / float(rank + 1));
  const bool has_more = is_prefetcher() && has_few(settings);
  sources_ = near_and_last(settings.end_layer(), has_more ? kMostLayers : kLastLayers);
  make_within();
  if (is_prefetcher()) make_maps();
  for (Token& token : tokens_) token.experts.resize(settings.num_layers);
}

void Learned::make_within() {
  const bool follows = is_prefetcher();
  std::vector<LearnedSource> sources = sources_;
  for (int layer : kMoreWithin)
    if (follows && has_few(settings_)) sources.push_back({false, layer, 0});
  const float rate =
      step_size(follows ? kRateWithin : kRate, sources.size(), 0, rank_weights_.size());
  within_.emplace(settings_, sources, rank_weights_, rate, follows);
}

void Learned::make_maps() {
  PolicySettings as_slru = settings_;
  as_slru.kind = PolicyKind::Slru, as_slru.warm_pin = 0;
  slru_ = std::make_unique<Slru>(as_slru);
  const int experts = settings_.num_experts;
  const int num_newest = has_few(settings_) ? kMostLayers : kLastLayers;
  for (int i = 0; i < num_newest; i++) sources_.push_back({false, -kLayersAhead - i, 1});
  contexts_.emplace(settings_, int(sources_.size()) * experts, kLayersAhead);
  const float rate = step_size(kRateAhead, sources_.size(), kContexts, rank_weights_.size());
  for (int layer = 0; layer < settings_.num_layers; layer++)
    maps_.emplace_back(int(sources_.size()), experts, rate, 0.f, true,
                       LearnedContexts::num_rows(experts));
}

void Learned::reset_sequence() {
  within_->reset_sequence();
  std::fill(scored_.begin(), scored_.end(), 0);
  for (Token& token : tokens_) {
    token.is_known = false;
    for (std::vector<int32_t>& experts : token.experts) experts.clear();
  }
}

// The shadow has as many slots, so that its misses can be compared.
void Learned::resize(int layer, int num_slots, std::vector<Swap>& swaps) {
  SlotPolicy::resize(layer, num_slots, swaps);
  if (slru_) slru_->resize(layer, SlotPolicy::num_slots(layer), slru_swaps_);
}

void Learned::set_prefetching(bool prefetches) {
  prefetches_ = prefetches;
  if (!prefetches_now()) std::fill(scored_.begin(), scored_.end(), 0);
}

// Forgets the last routes with the change, since those in between were not learned from.
void Learned::set_learning(bool learns) {
  if (learns == learns_) return;
  learns_ = learns;
  within_->reset_sequence();
  std::fill(scored_.begin(), scored_.end(), 0);
}

int Learned::victim(int layer) const {
  if (learns_) return victim(layer, scores(layer));
  return least(layer, [](int) { return 0.f; });
}

void Learned::on_access(int layer, const int32_t* experts, int count) {
  measure_need(layer, experts, count);
  const int k = std::min(count, settings_.experts_per_token);
  tokens_[kNext].experts[layer].assign(experts, experts + k);
}

void Learned::on_batch_access(int layer, const int32_t* routes, int tokens, int k) {
  if (slru_) slru_->use_batch(layer, routes, tokens, k, slru_swaps_);
  if (k != settings_.experts_per_token) return;  // other ranks compute some of a token's experts
  batch_[layer].assign(routes, routes + size_t(tokens) * k);
  batch_tokens_ = tokens;
}

void Learned::gather(int layer, Age age) {
  inputs_.clear();
  for (size_t s = 0; s < sources_.size(); s++) {
    const int from = sources_[s].layer + (sources_[s].is_absolute ? 0 : layer);
    if (from < 0 || from >= settings_.num_layers) continue;
    const std::vector<int32_t>& experts = tokens_[age + sources_[s].of_next_token].experts[from];
    for (size_t rank = 0; rank < std::min(experts.size(), rank_weights_.size()); rank++)
      inputs_.push_back({int(s) * settings_.num_experts + experts[rank], rank_weights_[rank]});
  }
  if (contexts_) contexts_->append(layer, tokens_[age].experts, tokens_[age + 1].experts, inputs_);
}

// Scores layer `layer` after the present token; before that, learns what the score after the
// previous token should have been.
void Learned::step(int layer) {
  LearnedMap& map = maps_[layer];
  const std::vector<int32_t>& used = tokens_[kPresent].experts[layer];
  map.count(used.data(), int(used.size()));
  gather(layer, kPresent);
  map.score(inputs_);
  if (scored_[layer]) {
    gather(layer, kBefore);
    map.learn_worth(inputs_, used.data(), int(used.size()), threshold_[layer], margin_);
  }
  map.keep();
  scored_[layer] = 1;
}

int Learned::best_outside(int layer, const float* scores, const std::vector<int32_t>* among) const {
  int best = -1;
  for (int e = 0; e < settings_.num_experts; e++) {
    if (resident(layer, e) || (best >= 0 && !(scores[e] > scores[best]))) continue;
    if (!among || std::find(among->begin(), among->end(), e) != among->end()) best = e;
  }
  return best;
}

int Learned::victim(int layer, const float* scores) const {
  return least(layer, [&](int e) { return scores[e]; });
}

// Gives missed experts of this use the slots of residents that score less.
void Learned::keep_missed(int layer, std::vector<Swap>& swaps) {
  const float* scores = within_->scores(layer);
  for (int i = 0; i < settings_.experts_per_token; i++) {
    const int enters = best_outside(layer, scores, &within_->used(layer));
    const int leaves = enters < 0 ? -1 : victim(layer, scores);
    if (leaves < 0 || !(scores[enters] > scores[leaves])) return;
    insert(layer, enters, leaves, false, swaps);
  }
}

void Learned::prefetch(int layer, std::vector<Swap>& swaps) {
  const float* scores = maps_[layer].scores();
  measure_threshold(layer);
  for (int i = 0; i < settings_.experts_per_token; i++) {
    if (float(total_early_loads() - loads_seen_) + 1.f > credit_) break;
    const int enters = best_outside(layer, scores, nullptr);
    const int leaves = victim(layer, scores);
    if (enters < 0 || leaves < 0 || !(scores[enters] > scores[leaves] + margin_)) break;
    insert(layer, enters, leaves, true, swaps);
  }
  watch_need(layer);
}

void Learned::measure_threshold(int layer) {
  const int leaves = slots(layer).has_free() ? -1 : victim(layer, maps_[layer].scores());
  if (leaves < 0) return;
  threshold_[layer] += (maps_[layer].scores()[leaves] - threshold_[layer]) * kThresholdRate;
}

void Learned::watch_need(int layer) {
  if (!settings_.moving_slots) return;
  const float* s = scores(layer);
  ends_[layer] = {true, best_outside(layer, s, nullptr), victim(layer, s)};
}

// Scores of different layers are worth different amounts, so what counts is what was used.
void Learned::measure_need(int layer, const int32_t* used, int count) {
  Ends& ends = ends_[layer];
  if (!ends.is_known) return;
  ends.is_known = false;
  const auto is_used = [&](int e) { return std::find(used, used + count, e) != used + count; };
  const bool is_short = !slots(layer).has_free();
  gain_[layer] += (float(is_short && is_used(ends.outside)) - gain_[layer]) * kNeedRate;
  loss_[layer] += (float(is_short && is_used(ends.inside)) - loss_[layer]) * kNeedRate;
}

// Moves one slot, every kMoveEvery tokens, from the layer that loses least to the one that gains
// most.
void Learned::move_slots(std::vector<Swap>& swaps) {
  if (tokens_seen_ < kMoveAfter || tokens_seen_ % kMoveEvery) return;
  int from = -1, to = -1;
  for (int layer = 0; layer < settings_.num_layers; layer++) {
    const int fewest = std::max(settings_.experts_per_token, settings_.slots[layer] / 2);
    const int now = slots(layer).num_slots();
    if (now < settings_.num_experts && (to < 0 || gain_[layer] > gain_[to])) to = layer;
    if (now > fewest && (from < 0 || loss_[layer] < loss_[from])) from = layer;
  }
  if (from < 0 || to < 0 || !(gain_[to] > loss_[from] + kNeedDifference)) return;
  const int leaves = victim(from);
  if (leaves >= 0) move_slot(from, to, leaves, swaps);
}

void Learned::score_within(int layer) {
  const std::vector<int32_t>& used = tokens_[kNext].experts[layer];
  if (learns_) within_->step(layer, used.data(), int(used.size()));
}

// Returns the layer that can be scored after this route: the one two layers ahead, whose map does
// not wait for a later one; -1 if none.
int Learned::score_ahead(int layer) {
  const int ahead = layer + kLayersAhead;
  if (!prefetches_now() || ahead >= settings_.num_layers) return -1;
  if (!tokens_[kPresent].is_known || !has_route(ahead)) return -1;
  step(ahead);
  return ahead;
}

void Learned::after_use(int layer, std::vector<Swap>& swaps) {
  const std::vector<int32_t>& used = tokens_[kNext].experts[layer];
  if (slru_) slru_->use(layer, used.data(), int(used.size()), slru_swaps_);
  score_within(layer);
  if (learns_) keep_missed(layer, swaps);
  if (!is_prefetcher()) watch_need(layer);
  const int scored = score_ahead(layer);
  if (scored >= 0) prefetch(scored, swaps);
}

// Makes the token in progress the present one.
void Learned::roll() {
  std::swap(tokens_[kBefore], tokens_[kPresent]);
  std::swap(tokens_[kPresent], tokens_[kNext]);
  tokens_[kPresent].is_known = true;
}

void Learned::end_step(std::vector<Swap>* swaps) {
  if (!is_prefetcher()) return;
  roll();
  if (!prefetches_now()) return;
  const int first = settings_.first_layer();
  for (int layer = first; layer < std::min(first + kLayersAhead, settings_.end_layer()); layer++) {
    if (!has_route(layer)) continue;
    step(layer);
    if (swaps) prefetch(layer, *swaps);
  }
}

void Learned::token_ended(std::vector<Swap>& swaps) {
  const bool was_batch = batch_tokens_ > 0;
  if (was_batch) replay_batch();
  else end_step(&swaps);
  if (!was_batch) {
    if (prefetches_now()) adapt_credit();
    tokens_seen_++;
    if (settings_.moving_slots) move_slots(swaps);
  }
  loads_seen_ = total_early_loads(), saved_seen_ = total_saved(), misses_seen_ = total_misses();
  if (!slru_) return;
  slru_->end_token(slru_swaps_);
  slru_swaps_.clear();
  slru_misses_seen_ = slru_->total_misses();
}

// Replays the batch's last tokens one by one, as if each had been decoded; swaps nothing.
void Learned::replay_batch() {
  const size_t k = settings_.experts_per_token;
  for (size_t t = 0; t < batch_tokens_; t++) {
    for (int layer = 0; layer < settings_.num_layers; layer++) {
      const int32_t* route = batch_[layer].data() + t * k;
      if (batch_[layer].empty()) continue;
      on_access(layer, route, int(k));
      score_within(layer);
      score_ahead(layer);
    }
    end_step(nullptr);
  }
  for (std::vector<int32_t>& routes : batch_) routes.clear();
  batch_tokens_ = 0;
}

// Counts what the prefetches of a token cost, and what earlier ones saved.
void Learned::adapt_credit() {
  const auto loads = float(total_early_loads() - loads_seen_);
  const auto saved = float(total_saved() - saved_seen_);
  const auto misses = float(total_misses() - misses_seen_);
  const auto of_slru = float(slru_->total_misses() - slru_misses_seen_);
  const float budget = std::min(settings_.load_budget, std::max(0.f, credit_ * kCreditOfToken));
  margin_ = std::max(0.f, margin_ + kMarginRate * (loads - budget));
  paid_ += (saved - paid_ * loads) * kPaidRate;
  const float unpaid = kExtraUnpaid * misses + saved;
  const float more = paid_ < kLeastPaid ? unpaid : kReadsOfSlru * of_slru - misses;
  if (credit_ > 1.f) credit_ *= kKeptOfCredit;  // a single prefetch is tried at some time
  credit_ += more - loads;
}

}  // namespace sharpi
