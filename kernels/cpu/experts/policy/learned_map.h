// One layer's linear map from recently used experts to a score per expert: what it is worth to have
// the expert in a slot.
//
// The inputs are rows of two tables, and recent uses. A row of the first stands for one source
// expert; a row of the second for a combination of experts, found by a hash, and it learns faster
// while it is new. A map that follows the text counts recent uses, and has the first table twice:
// what the second one learns fades, so that it is about the present text, and the first one about
// all. Multiplications and additions happen in the written order, unfused, so that
// tests/experts/reference/reference_learned_map.py agrees bit for bit.
#pragma once
#include <cstddef>
#include <vector>

#include "recent_uses.h"

namespace sharpi {

// A row of the map, and its weight.
struct MapInput {
  int row;
  float weight;
};

class LearnedMap {
 public:
  // The first source is the layer itself. `num_hashed`: rows after those of the sources.
  // `of_itself`: what an expert of the layer is worth at first for its own next use.
  LearnedMap(int num_sources, int num_experts, float rate, float of_itself, bool follows_text,
             int num_hashed);

  // Counts the experts that a token used; call it before computing scores.
  void count(const int* used, int num_used) { recent_.count(used, num_used); }
  // Computes the scores from `inputs` into scores().
  void score(const std::vector<MapInput>& inputs);
  // Moves the previous scores, which were computed from `inputs`, towards 1 for the experts `used`
  // since, and towards the discounted present score for the others.
  void learn(const std::vector<MapInput>& inputs, const int* used, int num_used);
  // The same, where the aim is the present score above `threshold`, at most `most`, and 1 more for
  // the experts `used`.
  void learn_worth(const std::vector<MapInput>& inputs, const int* used, int num_used,
                   float threshold, float most);
  // Keeps the present scores as the ones to learn from next.
  void keep() { previous_ = scores_; }
  const float* scores() const { return scores_.data(); }

 private:
  bool fades(const MapInput& input) const { return !fading_.empty() && input.row < first_hashed_; }
  void follow_error(const std::vector<MapInput>& inputs);
  float step_size(const MapInput& input);

  int num_experts_, first_hashed_;
  size_t stride_;  // floats per row, a multiple of a cache line
  float rate_;
  std::vector<float> weights_, bias_, scores_, previous_, error_;
  std::vector<float> fading_;  // of the present text; empty in a map that follows none
  RecentUses recent_;
  std::vector<float> times_learned_;  // per hashed row
};

}  // namespace sharpi
