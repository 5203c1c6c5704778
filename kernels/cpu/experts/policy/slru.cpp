// The segments of slru.h.
#include "slru.h"

namespace sharpi {

Slru::Slru(const PolicySettings& settings)
    : SlotPolicy(settings), segments_(settings.num_layers, Segments(settings.num_experts)) {}

void Slru::on_access(int layer, const int32_t* experts, int count) {
  Segments& s = segments_[layer];
  s.frequency.begin_token();
  for (int i = 0; i < count; i++) s.frequency.use(experts[i]);
  for (int i = 0; i < count; i++)
    if (resident(layer, experts[i])) promote(layer, experts[i]);
}

void Slru::on_batch_access(int layer, const int32_t* routes, int tokens, int k) {
  DecayedFrequency& frequency = segments_[layer].frequency;
  for (int t = 0; t < tokens; t++) {
    frequency.begin_token();
    for (int i = 0; i < k; i++) frequency.use(routes[t * k + i]);
  }
}

void Slru::promote(int layer, int expert) {
  Segments& s = segments_[layer];
  if (s.is_protected[expert]) return;
  s.is_protected[expert] = 1, s.num_protected++;
  const int probationary = std::max(1, slots(layer).num_slots() / kProbationaryPart);
  if (s.num_protected > slots(layer).num_slots() - probationary) demote_oldest(layer, expert);
}

void Slru::demote_oldest(int layer, int promoted) {
  Segments& s = segments_[layer];
  LayerSlots& l = layers_[layer];
  int oldest = -1;
  for (int32_t e : l.residents())
    if (s.is_protected[e] && !l.pinned(e) && e != promoted && (oldest < 0 || l.before(e, oldest)))
      oldest = e;
  if (oldest < 0) return;
  s.is_protected[oldest] = 0, s.num_protected--;
  l.freshen(oldest);
}

int Slru::victim(int layer) const {
  const Segments& s = segments_[layer];
  return least(layer, [&](int e) {
    return s.is_protected[e] ? kProtection * s.frequency[e] : s.frequency[e];
  });
}

bool Slru::admits(int layer, int expert, int victim) const {
  const DecayedFrequency& frequency = segments_[layer].frequency;
  return !settings_.admission || frequency[expert] > frequency[victim];
}

void Slru::inserted(int layer, int expert) {
  if (slots(layer).pinned(expert)) promote(layer, expert);
}

void Slru::evicted(int layer, int expert) {
  Segments& s = segments_[layer];
  s.num_protected -= s.is_protected[expert];
  s.is_protected[expert] = 0;
}

}  // namespace sharpi
