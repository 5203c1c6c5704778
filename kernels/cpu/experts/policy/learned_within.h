// Scores a layer's experts right after its route is known, within a token, from the newest known
// route of each layer; so that a missed expert can be kept while its bytes are there.
#pragma once
#include <optional>

#include "learned_contexts.h"
#include "learned_map.h"
#include "policy.h"

namespace sharpi {

// A layer whose experts are inputs of a map: absolute or relative to the scored layer, of this
// token or of the next.
struct LearnedSource {
  bool is_absolute;
  int layer;
  int of_next_token;
};

class LearnedWithin {
 public:
  // Maps that follow the text also have combinations of experts as inputs.
  LearnedWithin(const PolicySettings& settings, const std::vector<LearnedSource>& sources,
                const std::vector<float>& rank_weights, float rate, bool follows_text);

  // Records a layer's route, best first, learns from its last score, and scores it again.
  void step(int layer, const int32_t* experts, int count);
  void reset_sequence();
  const std::vector<int32_t>& used(int layer) const { return newest_[layer]; }
  const float* scores(int layer) const { return maps_[layer].scores(); }

 private:
  void gather(int layer);

  const std::vector<LearnedSource> sources_;
  const std::vector<float> rank_weights_;
  const int num_experts_;
  std::optional<LearnedContexts> contexts_;
  std::vector<LearnedMap> maps_;
  Routes newest_;
  std::vector<uint8_t> scored_;  // per layer: 1 if there is a score to learn from
  std::vector<MapInput> inputs_;
  std::vector<std::vector<MapInput>> inputs_before_;  // per layer: of the score to learn from
};

}  // namespace sharpi
