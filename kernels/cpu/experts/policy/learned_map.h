// One layer's linear map from recently used experts to a score per expert: the discounted time to
// its next use.
//
// Multiplications and additions happen in the written order, unfused, so that
// sharpi/experts/reference/learned_map.py agrees bit for bit.
#pragma once
#include <cstddef>
#include <vector>

namespace sharpi {

// A source expert as a row of the map, and the weight of its rank.
struct MapInput {
  int row;
  float weight;
};

class LearnedMap {
 public:
  LearnedMap(int num_sources, int num_experts, float rate);

  // Computes the scores from `inputs` into scores().
  void score(const std::vector<MapInput>& inputs);
  // Moves the previous scores, which were computed from `inputs`, towards 1 for the experts `used`
  // since, and towards the discounted present score for the others.
  void learn(const std::vector<MapInput>& inputs, const int* used, int num_used);
  // Keeps the present scores as the ones to learn from next.
  void keep() { previous_ = scores_; }
  const float* scores() const { return scores_.data(); }

 private:
  int num_experts_;
  size_t stride_;  // floats per row, a multiple of a cache line
  float rate_;
  std::vector<float> weights_, bias_, scores_, previous_, error_;
};

}  // namespace sharpi
