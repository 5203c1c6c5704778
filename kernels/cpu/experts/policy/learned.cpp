// The swaps of learned.h.
#include "learned.h"

#include <algorithm>

namespace sharpi {
namespace {

constexpr double kRate = 0.15;
constexpr float kSteering = 0.0005f;
constexpr int kLayersAhead = 2, kLastLayers = 4;
constexpr int kRanks = 4;  // of a route, the best ones: more would cost more than they gain
constexpr float kNeedRate = 1.f / 512, kNeedDifference = 0.06f;
constexpr int kMoveEvery = 64, kMoveAfter = 512;  // tokens

float step_size(size_t num_sources, int k) {
  double energy = 0;
  for (int i = 0; i < k; i++) energy += 1.0 / (double(i + 1) * (i + 1));
  return float(kRate / (double(num_sources) * energy));
}

}  // namespace

Learned::Learned(const PolicySettings& settings)
    : SlotPolicy(settings),
      sources_(choose_sources(settings)),
      scored_(settings.num_layers),
      batch_(settings.num_layers),
      inputs_before_(settings.num_layers),
      need_(settings.num_layers) {
  const int ranks = std::min(settings.experts_per_token, kRanks);
  const float rate = step_size(sources_.size(), ranks);
  for (int layer = 0; layer < settings.num_layers; layer++)
    maps_.emplace_back(int(sources_.size()), settings.num_experts, rate);
  for (int rank = 0; rank < ranks; rank++) rank_weights_.push_back(1.f / float(rank + 1));
  for (Token& token : tokens_) token.experts.resize(settings.num_layers);
}

std::vector<Learned::Source> Learned::choose_sources(const PolicySettings& settings) {
  std::vector<Source> sources = {{false, 0, 0}, {false, -1, 0}, {false, 1, 0}};
  for (int i = kLastLayers; i > 0; i--) sources.push_back({true, settings.num_layers - i, 0});
  if (settings.kind == PolicyKind::Learned)
    for (int i = 0; i < 3; i++) sources.push_back({false, -kLayersAhead - i, 1});
  return sources;
}

void Learned::reset_sequence() {
  std::fill(scored_.begin(), scored_.end(), 0);
  for (Token& token : tokens_) {
    token.is_known = false;
    for (std::vector<int32_t>& experts : token.experts) experts.clear();
  }
}

void Learned::touched(int layer, const int32_t* experts, int count) {
  const int k = std::min(count, settings_.experts_per_token);
  const Age age = settings_.kind == PolicyKind::LearnedKeep ? kPresent : kNext;
  tokens_[age].experts[layer].assign(experts, experts + k);
}

void Learned::touched_batch(int layer, const int32_t* routes, int tokens, int k) {
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
}

// Scores layer `layer` after the present token; before that, learns what the score after the
// previous token should have been.
void Learned::step(int layer) {
  LearnedMap& map = maps_[layer];
  gather(layer, kPresent);
  map.score(inputs_);
  if (scored_[layer]) {
    const std::vector<int32_t>& used = tokens_[kPresent].experts[layer];
    gather(layer, kBefore);
    map.learn(inputs_, used.data(), int(used.size()));
  }
  map.keep();
  scored_[layer] = 1;
}

// Scores a layer within a token, from the newest known route of each layer.
void Learned::step_within(int layer) {
  LearnedMap& map = maps_[layer];
  gather(layer, kPresent);
  map.score(inputs_);
  const std::vector<int32_t>& used = tokens_[kPresent].experts[layer];
  if (scored_[layer]) map.learn(inputs_before_[layer], used.data(), int(used.size()));
  map.keep();
  inputs_before_[layer].swap(inputs_);
  scored_[layer] = 1;
}

bool Learned::is_used(int layer, int expert) const {
  const std::vector<int32_t>& used = tokens_[kPresent].experts[layer];
  return std::find(used.begin(), used.end(), expert) != used.end();
}

int Learned::best_outside(int layer, bool only_used) const {
  const float* scores = maps_[layer].scores();
  int best = -1;
  for (int e = 0; e < settings_.num_experts; e++)
    if (!resident(layer, e) && (best < 0 || scores[e] > scores[best]) &&
        (!only_used || is_used(layer, e)))
      best = e;
  return best;
}

int Learned::victim(int layer) const {
  const float* scores = maps_[layer].scores();
  return least(layer, [&](int e) { return scores[e]; });
}

void Learned::swap(int layer, std::vector<Swap>& swaps) {
  const float* scores = maps_[layer].scores();
  const bool keeps = settings_.kind == PolicyKind::LearnedKeep;
  const bool retains = keeps || settings_.kind == PolicyKind::LearnedRetain;
  const float margin = keeps ? 0 : margin_;
  for (int i = 0; i < settings_.experts_per_token; i++) {
    const int enters = best_outside(layer, retains), leaves = victim(layer);
    if (enters < 0 || leaves < 0 || !(scores[enters] > scores[leaves] + margin)) break;
    insert(layer, enters, leaves, !is_used(layer, enters), swaps);
  }
  if (settings_.moving_slots) measure_need(layer);
}

void Learned::measure_need(int layer) {
  const float* scores = maps_[layer].scores();
  const int outside = best_outside(layer, false), inside = victim(layer);
  const float gain = outside < 0 ? 0 : scores[outside], loss = inside < 0 ? 0 : scores[inside];
  const float need = slots(layer).has_free() ? 0 : gain + loss;
  need_[layer] += (need - need_[layer]) * kNeedRate;
}

// Moves one slot, every kMoveEvery tokens, from the layer that needs it least to the one that needs
// it most.
void Learned::move_slots(std::vector<Swap>& swaps) {
  if (tokens_seen_ < kMoveAfter || tokens_seen_ % kMoveEvery) return;
  int from = -1, to = -1;
  for (int layer = 0; layer < settings_.num_layers; layer++) {
    const int fewest = std::max(settings_.experts_per_token, settings_.slots[layer] / 2);
    const int now = slots(layer).num_slots();
    if (now < settings_.num_experts && (to < 0 || need_[layer] > need_[to])) to = layer;
    if (now > fewest && (from < 0 || need_[layer] < need_[from])) from = layer;
  }
  if (from < 0 || to < 0 || !(need_[to] > need_[from] + kNeedDifference)) return;
  const int leaves = victim(from);
  if (leaves >= 0) move_slot(from, to, leaves, swaps);
}

// Returns the layer that can be scored right after this route: the layer itself, or the one two
// layers ahead, whose map does not wait for a later one; -1 if none.
int Learned::score_after(int layer) {
  if (settings_.kind == PolicyKind::LearnedKeep) return step_within(layer), layer;
  const int ahead = layer + kLayersAhead;
  const bool decides_ahead = settings_.kind == PolicyKind::Learned && ahead < settings_.num_layers;
  if (!decides_ahead || !tokens_[kPresent].is_known || !has_route(ahead)) return -1;
  step(ahead);
  return ahead;
}

void Learned::after_use(int layer, std::vector<Swap>& swaps) {
  const int scored = score_after(layer);
  if (scored >= 0) swap(scored, swaps);
}

// Makes the token under way the present one.
void Learned::roll() {
  std::swap(tokens_[kBefore], tokens_[kPresent]);
  std::swap(tokens_[kPresent], tokens_[kNext]);
  tokens_[kPresent].is_known = true;
}

void Learned::end_step(std::vector<Swap>* swaps) {
  if (settings_.kind == PolicyKind::LearnedKeep) return;
  roll();
  const int num_layers = settings_.num_layers;
  const int until =
      settings_.kind == PolicyKind::Learned ? std::min(kLayersAhead, num_layers) : num_layers;
  for (int layer = 0; layer < until; layer++) {
    if (!has_route(layer)) continue;
    step(layer);
    if (swaps) swap(layer, *swaps);
  }
}

void Learned::token_ended(std::vector<Swap>& swaps) {
  const bool was_batch = batch_tokens_ > 0;
  if (was_batch) replay_batch();
  else end_step(&swaps);
  if (!was_batch) {
    steer();
    tokens_seen_++;
    if (settings_.moving_slots) move_slots(swaps);
  }
  loads_seen_ = total_loads();
}

// Replays the batch's last tokens one by one, as if each had been decoded; swaps nothing.
void Learned::replay_batch() {
  const size_t k = settings_.experts_per_token;
  for (size_t t = 0; t < batch_tokens_; t++) {
    for (int layer = 0; layer < settings_.num_layers; layer++) {
      const int32_t* route = batch_[layer].data() + t * k;
      if (batch_[layer].empty()) continue;
      touched(layer, route, int(k));
      score_after(layer);
    }
    end_step(nullptr);
  }
  for (std::vector<int32_t>& routes : batch_) routes.clear();
  batch_tokens_ = 0;
}

void Learned::steer() {
  const float excess = float(total_loads() - loads_seen_) - settings_.load_budget;
  margin_ = std::max(0.f, margin_ + kSteering * excess);
}

}  // namespace sharpi
