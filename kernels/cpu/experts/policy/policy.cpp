// The part that all policies share: lookups and their counts, free slots, pins, batches.
#include "policy.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace sharpi {

int PolicySettings::first_layer() const {
  const auto first = std::find_if(slots.begin(), slots.end(), [](int count) { return count > 0; });
  return first == slots.end() ? 0 : int(first - slots.begin());
}

int PolicySettings::end_layer() const {
  const auto last = std::find_if(slots.rbegin(), slots.rend(), [](int count) { return count > 0; });
  return last == slots.rend() ? num_layers : int(slots.rend() - last);
}

SlotPolicy::SlotPolicy(const PolicySettings& settings)
    : settings_(settings),
      counts_(settings.num_layers),
      early_(settings.num_layers, std::vector<uint8_t>(settings.num_experts)),
      displaced_(settings.num_layers, std::vector<int32_t>(settings.num_experts, -1)) {
  for (int layer = 0; layer < settings.num_layers; layer++) {
    layers_.emplace_back(settings.num_experts,
                         std::min(settings.slots[layer], settings.num_experts));
    if (!settings.pinned.empty()) pin(layer, settings.pinned[layer], nullptr);
  }
  next_pin_ = pin_after(-1);
}

void SlotPolicy::start(std::vector<Swap>& swaps) {
  for (int layer = 0; layer < settings_.num_layers; layer++)
    for (int e = 0; e < settings_.num_experts; e++)
      if (layers_[layer].pinned(e) && !resident(layer, e)) insert(layer, e, -1, false, swaps);
  for (size_t layer = 0; layer < settings_.warm.size(); layer++) fill_warm(int(layer), swaps);
}

void SlotPolicy::fill_warm(int layer, std::vector<Swap>& swaps) {
  for (int32_t e : settings_.warm[layer]) {
    if (!layers_[layer].has_free()) return;
    if (!resident(layer, e) && may_take_free(layer, e)) insert(layer, e, -1, false, swaps);
  }
}

void SlotPolicy::use(int layer, const int32_t* experts, int count, std::vector<Swap>& swaps) {
  LayerSlots& slots = layers_[layer];
  LayerCounts& counts = counts_[layer];
  slots.begin_use();
  missed_.clear();
  for (int i = 0; i < count; i++) {
    const int32_t e = experts[i];
    slots.use(e);
    slots.count(e, 1);
    if (!slots.resident(e)) {
      missed_.push_back(e);
      note_miss(layer, e);
      continue;
    }
    counts.hits++, total_hits_++;
    note_early_use(layer, e);
  }
  counts.accesses += count, total_accesses_ += count;
  on_access(layer, experts, count);
  for (int32_t e : missed_) place(layer, e, swaps);
  after_use(layer, swaps);
}

void SlotPolicy::place(int layer, int expert, std::vector<Swap>& swaps) {
  if (layers_[layer].has_free()) {
    if (may_take_free(layer, expert)) insert(layer, expert, -1, false, swaps);
    return;
  }
  const int leaves = victim(layer);
  if (leaves >= 0 && (layers_[layer].pinned(expert) || admits(layer, expert, leaves)))
    insert(layer, expert, leaves, false, swaps);
}

void SlotPolicy::note_early_use(int layer, int expert) {
  counts_[layer].early_hits += early_[layer][expert];
  total_saved_ += displaced_[layer][expert] >= 0;
  early_[layer][expert] = 0, displaced_[layer][expert] = -1;
}

void SlotPolicy::note_early_waste(int layer, int expert) {
  early_[layer][expert] = 0, displaced_[layer][expert] = -1;
}

void SlotPolicy::note_miss(int layer, int expert) {
  if (!total_early_loads_) return;
  const std::vector<int32_t>& of_layer = displaced_[layer];
  total_saved_ -= std::count(of_layer.begin(), of_layer.end(), expert);
}

// Notes who would be resident without early loads: a miss would have evicted an expert that left
// for one of them before, and `victim` would be there.
void SlotPolicy::note_victim(int layer, int expert, int victim, bool early) {
  if (!total_early_loads_ && !early) return;
  std::vector<int32_t>& of_layer = displaced_[layer];
  const int32_t stays = of_layer[victim] < 0 ? victim : of_layer[victim];
  of_layer[victim] = -1;
  auto at = std::find(of_layer.begin(), of_layer.end(), expert);
  if (at == of_layer.end() && early) at = of_layer.begin() + expert;
  if (at == of_layer.end())
    at = std::find_if(of_layer.begin(), of_layer.end(), [](int32_t e) { return e >= 0; });
  if (at != of_layer.end()) *at = stays;
}

void SlotPolicy::insert(int layer, int expert, int victim, bool early, std::vector<Swap>& swaps) {
  if (victim >= 0) {
    layers_[layer].replace(expert, victim);
    note_victim(layer, expert, victim, early);
    note_early_waste(layer, victim);
    evicted(layer, victim);
  } else {
    layers_[layer].insert(expert);
  }
  inserted(layer, expert);
  early_[layer][expert] = early;
  counts_[layer].loads++;
  counts_[layer].early_loads += early, total_early_loads_ += early;
  swaps.push_back({layer, expert, victim});
}

bool SlotPolicy::exchange(int layer, int leaves, int enters) {
  LayerSlots& slots = layers_[layer];
  if (!slots.resident(leaves) || slots.resident(enters) || slots.pinned(leaves)) return false;
  slots.replace(enters, leaves);
  slots.freshen(enters);
  early_[layer][leaves] = early_[layer][enters] = 0;
  displaced_[layer][leaves] = displaced_[layer][enters] = -1;
  evicted(layer, leaves);
  inserted(layer, enters);
  return true;
}

void SlotPolicy::take_slot(int layer, int victim, std::vector<Swap>& swaps) {
  if (!layers_[layer].has_free()) {
    layers_[layer].remove(victim);
    note_early_waste(layer, victim);
    evicted(layer, victim);
    swaps.push_back({layer, -1, victim});
  }
  layers_[layer].resize(-1);
}

void SlotPolicy::move_slot(int layer, int to_layer, int victim, std::vector<Swap>& swaps) {
  take_slot(layer, victim, swaps);
  layers_[to_layer].resize(1);
}

void SlotPolicy::resize(int layer, int num_slots, std::vector<Swap>& swaps) {
  LayerSlots& slots = layers_[layer];
  while (slots.num_slots() > num_slots) {
    const int ranked = slots.has_free() ? -1 : victim(layer);
    const int leaves = ranked < 0 && !slots.has_free() ? least_used(layer) : ranked;
    if (leaves < 0 && !slots.has_free()) return;
    take_slot(layer, leaves, swaps);
  }
  slots.resize(num_slots - slots.num_slots());
}

// Returns the resident expert with the fewest uses, pinned or not, or -1 if all are in use.
int SlotPolicy::least_used(int layer) const {
  const LayerSlots& slots = layers_[layer];
  int best = -1;
  for (int e = 0; e < settings_.num_experts; e++) {
    if (!slots.resident(e) || slots.in_use(e)) continue;
    if (best < 0 || slots.access_count(e) < slots.access_count(best)) best = e;
  }
  return best;
}

void SlotPolicy::use_batch(int layer, const int32_t* routes, int tokens, int k,
                           std::vector<Swap>& swaps) {
  LayerSlots& slots = layers_[layer];
  slots.begin_use();
  std::vector<int32_t> experts(routes, routes + size_t(tokens) * k);
  for (int32_t e : experts) slots.use(e), slots.count(e, 1);
  std::sort(experts.begin(), experts.end());
  experts.erase(std::unique(experts.begin(), experts.end()), experts.end());
  for (int32_t e : experts) {
    const bool hit = slots.resident(e);
    counts_[layer].accesses++, total_accesses_++;
    counts_[layer].hits += hit, total_hits_ += hit;
    if (hit) note_early_use(layer, e);
    else note_miss(layer, e);
  }
  const int last = std::min(tokens, kBatchMemory);
  on_batch_access(layer, routes + size_t(tokens - last) * k, last, k);
  fill_from_batch(layer, experts, swaps);
}

void SlotPolicy::fill_from_batch(int layer, std::vector<int32_t>& experts,
                                 std::vector<Swap>& swaps) {
  std::stable_sort(experts.begin(), experts.end(),
                   [&](int a, int b) { return priority(layer, a) > priority(layer, b); });
  for (int32_t e : experts) {
    if (!layers_[layer].has_free()) return;
    if (!resident(layer, e) && may_take_free(layer, e)) insert(layer, e, -1, false, swaps);
  }
}

void SlotPolicy::end_token(std::vector<Swap>& swaps) {
  for (LayerSlots& slots : layers_) slots.end_use();
  token_ended(swaps);
  if (settings_.warm_pin > 0 && total_accesses_ >= next_pin_) warm_pin(swaps);
}

int64_t SlotPolicy::pin_after(int64_t last) const {
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  const int64_t limit = settings_.warm_pin_after;
  if (settings_.kind != PolicyKind::Static) return last < 0 ? limit : kNever;
  if (last >= limit) return kNever;
  int64_t next = std::max<int64_t>(1, limit / kFirstChoice);
  while (next <= last) next *= 2;
  return std::min(next, limit);
}

void SlotPolicy::warm_pin(std::vector<Swap>& swaps) {
  if (accesses_before_pin_ < 0)
    accesses_before_pin_ = total_accesses_, hits_before_pin_ = total_hits_;
  next_pin_ = pin_after(total_accesses_);
  std::vector<int32_t> order(settings_.num_experts);
  for (int layer = 0; layer < settings_.num_layers; layer++) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return access_count(layer, a) > access_count(layer, b); });
    order.resize(std::min(settings_.warm_pin, settings_.num_experts));
    if (settings_.kind == PolicyKind::Static) layers_[layer].unpin_all();
    pin(layer, order, &swaps);
    order.resize(settings_.num_experts);
  }
}

// Pins experts in the given order, up to half of the slots (all of them where the list is the whole
// policy); with `swaps`, also loads those that are not resident.
void SlotPolicy::pin(int layer, const std::vector<int32_t>& experts, std::vector<Swap>* swaps) {
  LayerSlots& slots = layers_[layer];
  int room = settings_.kind == PolicyKind::Static ? slots.num_slots() : slots.num_slots() / 2;
  for (int e = 0; e < settings_.num_experts; e++) room -= slots.pinned(e);
  for (int32_t e : experts) {
    if (room <= 0) return;
    if (slots.pinned(e)) continue;
    slots.pin(e), room--;
    if (!swaps) continue;
    if (slots.resident(e)) was_pinned(layer, e);
    else place(layer, e, *swaps);
  }
}

}  // namespace sharpi
