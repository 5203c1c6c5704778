// Predicts which experts a layer uses next, from routes alone. Predictions are hints and never
// change the output.
//
// A predictor counts which experts followed which, between adjacent layers and from token to token
// of one layer; a full row of a table is halved, so that the latest text counts most.
// sharpi/experts/predictor.py makes the same predictions.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sharpi {

// The order is that of PREDICTORS in sharpi/experts/predictor.py.
enum class PredictorKind : int32_t { LastToken, LastLayer, Both };

// Counts how often each expert was seen after each other one.
class FollowCounts {
 public:
  explicit FollowCounts(int num_experts)
      : num_experts_(num_experts),
        seen_(num_experts),
        counts_(std::size_t(num_experts) * num_experts) {}
  void observe(const std::vector<int32_t>& before, const int32_t* experts, int count);
  // Adds `weight` times each expert's share of the uses after each expert of `before`; the best of
  // `before` count most.
  void score(const std::vector<int32_t>& before, float weight, std::vector<float>& scores) const;

 private:
  int num_experts_;
  std::vector<float> seen_, counts_;
};

class Predictor {
 public:
  Predictor(PredictorKind kind, int num_layers, int num_experts);
  // Takes note of the experts that the present token uses in a layer, best first.
  void observe(int layer, const int32_t* experts, int count);
  // Writes at most `budget` distinct experts for the next use of a layer, likeliest first, and
  // returns their number.
  int predict(int layer, int budget, int32_t* experts);
  // Begins a new, unrelated text: forgets the routes, keeps the counts.
  void reset_sequence();

 private:
  // Returns the route before that of `layer`: of the layer below, or for the first layer the last
  // layer's route of the previous token.
  const std::vector<int32_t>& below(int layer) const {
    return routes_[layer ? layer - 1 : routes_.size() - 1];
  }

  PredictorKind kind_;
  int num_experts_;
  std::vector<std::vector<int32_t>> routes_;  // per layer: the route of its last use
  std::vector<FollowCounts> after_layer_, after_token_;
  std::vector<float> scores_;
  std::vector<int32_t> order_;
};

}  // namespace sharpi
