// Decayed counts of uses, which halve in kHalfLife tokens; experts without a slot have them too.
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
  explicit DecayedFrequency(int num_experts) : count_(num_experts) {}

  void begin_token() {
    weight_ *= kGrowth;
    if (weight_ < kLargest) return;
    const float scale = 1.f / weight_;
    for (float& c : count_) c *= scale;
    weight_ = 1;
  }
  void use(int expert) { count_[expert] += weight_; }
  float operator[](int expert) const { return count_[expert]; }

 private:
  static constexpr int kHalfLife = 16;
  static constexpr float kLargest = 1 << 20;
  static inline const float kGrowth = float(std::exp2(1.0 / kHalfLife));
  std::vector<float> count_;
  float weight_ = 1;
};

}  // namespace sharpi
