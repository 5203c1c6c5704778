// Segmented LRU that evicts the expert with the fewest recent uses, where uses of protected experts
// weigh more.
//
// Part of the slots is probationary: new experts enter there, and a hit promotes them. A full
// protected segment demotes its oldest unpinned expert to the probationary one.
#pragma once
#include "policy.h"
#include "policy_frequency.h"

namespace sharpi {

class Slru : public SlotPolicy {
 public:
  explicit Slru(const PolicySettings& settings);

 protected:
  void on_access(int layer, const int32_t* experts, int count) override;
  void on_batch_access(int layer, const int32_t* routes, int tokens, int k) override;
  float priority(int layer, int expert) const override {
    return segments_[layer].frequency[expert];
  }
  int victim(int layer) const override;
  bool admits(int layer, int expert, int victim) const override;
  void inserted(int layer, int expert) override;
  void evicted(int layer, int expert) override;
  void was_pinned(int layer, int expert) override { promote(layer, expert); }

 private:
  struct Segments {
    explicit Segments(int num_experts)
        : frequency(num_experts, kSlruGrowth), is_protected(num_experts) {}
    DecayedFrequency frequency;
    std::vector<uint8_t> is_protected;
    int num_protected = 0;
  };
  void promote(int layer, int expert);
  void demote_oldest(int layer, int promoted);

  std::vector<Segments> segments_;
};

}  // namespace sharpi
