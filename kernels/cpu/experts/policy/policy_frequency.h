// Decayed counts of uses, also of experts without a slot.
//
// Counts are not touched to decay: instead the weight of a new use grows, and only ratios matter.
// Once in a few hundred tokens all counts are scaled back.
#pragma once
#include <vector>

#include "slot_rules.h"

namespace sharpi {

class DecayedFrequency {
 public:
  // `growth`: the weight of a use relative to one of the token before.
  DecayedFrequency(int num_experts, float growth) : growth_(growth), count_(num_experts) {}

  void begin_token() {
    weight_ *= growth_;
    if (weight_ < kLargestWeight) return;
    const float scale = 1.f / weight_;
    for (float& c : count_) c *= scale;
    weight_ = 1;
  }
  void use(int expert) { count_[expert] += weight_; }
  float operator[](int expert) const { return count_[expert]; }

 private:
  float growth_;
  std::vector<float> count_;
  float weight_ = 1;
};

}  // namespace sharpi
