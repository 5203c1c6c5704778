// Combinations of experts that say more than each of them alone: the rows of a map's hashed table.
//
// A combination of a layer and a token's text is nearly a name for what the model is doing. The
// hash is that of tests/experts/reference/reference_learned_contexts.py.
#pragma once
#include <cstdint>
#include <vector>

#include "learned_map.h"
#include "policy.h"

namespace sharpi {

using Routes = std::vector<std::vector<int32_t>>;  // the experts of one token, by layer, best first

class LearnedContexts {
 public:
  // `ahead`: a layer is scored when the next token's route so many layers below it is known; 0 when
  // its own is, and then present and next are the same routes.
  LearnedContexts(const PolicySettings& settings, int first_row, int ahead);

  // Returns the number of rows of a layer's hashed table, a power of two.
  static int num_rows(int num_experts);
  // Appends the rows for a layer after the token `present`, of the next one's routes those that are
  // known when the layer is scored.
  void append(int layer, const Routes& present, const Routes& next,
              std::vector<MapInput>& inputs) const;

 private:
  const std::vector<int32_t>& newest(int layer, const Routes& present, const Routes& next) const;

  int first_layer_, end_layer_, first_row_, ahead_;
  uint32_t mask_;
};

}  // namespace sharpi
