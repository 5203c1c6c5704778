// Predicts which experts a layer uses next, from routes alone. Predictions are hints and never
// change the output.
//
// A predictor counts which experts followed which, between adjacent layers and from token to token
// of one layer; or how often each expert was used at all. A full row of a table is halved, so that
// the latest text counts most. Routes belong to a sequence, counts to all of them.
// tests/experts/reference/reference_predictor.py makes the same predictions.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "slot_rules.h"

namespace sharpi {

// The order is that of PREDICTORS in sharpi/experts/native/feed.py.
enum class PredictorKind : int32_t { LastToken, LastLayer, Both, Frequency };

// Counts how often each expert was seen after each other one.
class FollowCounts {
 public:
  explicit FollowCounts(int num_experts)
      : num_experts_(num_experts),
        seen_(num_experts),
        counts_(std::size_t(num_experts) * num_experts) {}
  void observe(const std::vector<int32_t>& before, const int32_t* experts, int count);
  // Adds `weight` times each expert's share of the uses after each expert of `before`; the best in
  // `before` count most.
  void score(const std::vector<int32_t>& before, float weight, std::vector<float>& scores) const;

 private:
  int num_experts_;
  std::vector<float> seen_, counts_;
};

// Counts how often each expert of a layer was used.
class UseCounts {
 public:
  explicit UseCounts(int num_experts) : counts_(num_experts) {}
  void observe(const int32_t* experts, int count);
  void score(std::vector<float>& scores) const;

 private:
  float seen_ = 0;  // tokens
  std::vector<float> counts_;
};

class Predictor {
 public:
  Predictor(PredictorKind kind, int num_layers, int num_experts);
  PredictorKind kind() const { return kind_; }
  // Records the experts that the present token of a sequence uses in a layer, best first.
  void observe(int layer, const int32_t* experts, int count, int sequence = 0);
  // Records the experts that a token of a prompt uses; only frequencies learn from prompts.
  void observe_prompt(int layer, const int32_t* experts, int count);
  // Writes at most `budget` distinct experts for the next use of a layer, likeliest first, and
  // returns their number.
  int predict(int layer, int budget, int32_t* experts, int sequence = 0);
  // Begins a new, unrelated text: forgets the routes, keeps the counts.
  void reset_sequence(int sequence = 0);
  // Makes room for the routes of `count` sequences.
  void hold_sequences(int count);

 private:
  using Routes = std::vector<std::vector<int32_t>>;  // by layer: the route of its last use

  void score(int layer, const Routes& routes);
  // Returns the route that came before `layer`: the layer below's; for the first layer, the last
  // layer's of the previous token.
  static const std::vector<int32_t>& below(const Routes& routes, int layer) {
    return routes[layer ? layer - 1 : routes.size() - 1];
  }

  PredictorKind kind_;
  int num_layers_, num_experts_;
  std::vector<Routes> routes_;  // by sequence
  std::vector<FollowCounts> after_layer_, after_token_;
  std::vector<UseCounts> uses_;
  std::vector<float> scores_;
  std::vector<int32_t> order_;
};

}  // namespace sharpi
