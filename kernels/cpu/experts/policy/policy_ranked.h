// The plain policies, which rank experts by one number; and the fixed set, which never changes.
#pragma once
#include "policy.h"
#include "policy_frequency.h"

namespace sharpi {

// Evicts the oldest expert.
class Lru : public SlotPolicy {
 public:
  using SlotPolicy::SlotPolicy;

 protected:
  void on_access(int, const int32_t*, int) override {}
  void on_batch_access(int, const int32_t*, int, int) override {}
  float priority(int layer, int expert) const override {
    return float(slots(layer).access_count(expert));
  }
  int victim(int layer) const override {
    return least(layer, [](int) { return 0.f; });
  }
  bool admits(int, int, int) const override { return true; }
};

// vLLM's rule: evicts the expert with fewest uses for its age in tokens, where old uses count less.
class Lfru : public SlotPolicy {
 public:
  explicit Lfru(const PolicySettings& settings)
      : SlotPolicy(settings),
        frequency_(settings.num_layers, DecayedFrequency(settings.num_experts, kLfruGrowth)) {}

 protected:
  void on_access(int layer, const int32_t* experts, int count) override {
    frequency_[layer].begin_token();
    for (int i = 0; i < count; i++) frequency_[layer].use(experts[i]);
  }
  void on_batch_access(int layer, const int32_t* routes, int tokens, int k) override {
    for (int t = 0; t < tokens; t++) on_access(layer, routes + size_t(t) * k, k);
  }
  float priority(int layer, int expert) const override { return frequency_[layer][expert]; }
  int victim(int layer) const override {
    const LayerSlots& l = slots(layer);
    return least(
        layer, [&](int e) { return frequency_[layer][e] / float(1 + l.clock() - l.last_used(e)); });
  }
  bool admits(int, int, int) const override { return true; }

 private:
  std::vector<DecayedFrequency> frequency_;  // per layer
};

// The pinned experts are the whole set; free slots stay free. While uses are counted, the set is
// that of the start, and the warm pin evicts those used least for those used most.
class Static : public SlotPolicy {
 public:
  using SlotPolicy::SlotPolicy;

 protected:
  void on_access(int, const int32_t*, int) override {}
  void on_batch_access(int, const int32_t*, int, int) override {}
  float priority(int layer, int expert) const override { return slots(layer).pinned(expert); }
  int victim(int layer) const override {
    if (!counts_uses()) return -1;
    return least(layer, [&](int e) { return float(slots(layer).access_count(e)); });
  }
  bool admits(int, int, int) const override { return false; }
  bool may_take_free(int layer, int expert) const override {
    return counts_uses() || slots(layer).pinned(expert);
  }
};

}  // namespace sharpi
