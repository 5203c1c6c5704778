// The plain policies, kept for comparison, which rank experts by one number; and the fixed set,
// which never changes.
#pragma once
#include "policy.h"

namespace sharpi {

// lru evicts the oldest expert, lfu the one with fewest uses ever, lfru the one with fewest uses
// for its age in tokens.
class Ranked : public SlotPolicy {
 public:
  using SlotPolicy::SlotPolicy;

 protected:
  void touched(int, const int32_t*, int) override {}
  void touched_batch(int, const int32_t*, int, int) override {}
  float worth(int layer, int expert) const override {
    return float(slots(layer).access_count(expert));
  }
  int victim(int layer) const override {
    return least(layer, [&](int e) { return key(layer, e); });
  }
  bool admits(int, int, int) const override { return true; }

 private:
  float key(int layer, int expert) const {
    if (settings_.kind == PolicyKind::Lru) return 0;
    const LayerSlots& l = slots(layer);
    const float uses = float(l.access_count(expert));
    return settings_.kind == PolicyKind::Lfu ? uses
                                             : uses / float(1 + l.clock() - l.last_used(expert));
  }
};

// The pinned experts are the whole set; free slots stay free.
class Static : public SlotPolicy {
 public:
  using SlotPolicy::SlotPolicy;

 protected:
  void touched(int, const int32_t*, int) override {}
  void touched_batch(int, const int32_t*, int, int) override {}
  float worth(int layer, int expert) const override { return slots(layer).pinned(expert); }
  int victim(int) const override { return -1; }
  bool admits(int, int, int) const override { return false; }
  bool may_take_free(int layer, int expert) const override { return slots(layer).pinned(expert); }
};

}  // namespace sharpi
