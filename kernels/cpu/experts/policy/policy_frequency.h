// Decayed counts of uses, also of experts without a slot. slru's halve in 16 tokens; those of lfru
// lose 5 % in each token.
//
// Counts are not touched to decay: instead the weight of a new use grows, and only ratios matter.
// Once in a few hundred tokens all counts are scaled back.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

namespace sharpi {

class DecayedFrequency {
 public:
  static inline const float kHalfIn16 = float(std::exp2(1.0 / 16));
  static constexpr float kDecay95 = float(1.0 / 0.95);

  // `growth`: the weight of a use relative to one of the token before.
  DecayedFrequency(int num_experts, float growth) : growth_(growth), count_(num_experts) {}

  void begin_token() {
    weight_ *= growth_;
    if (weight_ < kLargest) return;
    const float scale = 1.f / weight_;
    for (float& c : count_) c *= scale;
    weight_ = 1;
  }
  void use(int expert) { count_[expert] += weight_; }
  float operator[](int expert) const { return count_[expert]; }

 private:
  static constexpr float kLargest = 1 << 20;
  float growth_;
  std::vector<float> count_;
  float weight_ = 1;
};

}  // namespace sharpi
