// How lately and how often each expert of a layer was used, as inputs of a map: for each of two
// time spans a decayed count of uses, and a learned weight per expert.
//
// Multiplications and additions happen in the written order, unfused, so that
// tests/experts/reference/reference_recent_uses.py agrees bit for bit.
#pragma once
#include <cstddef>
#include <vector>

#include "slot_rules.h"

namespace sharpi {

class RecentUses {
 public:
  // Without `is_kept` nothing is counted, and nothing added. `stride`: floats of a vector.
  RecentUses(bool is_kept, size_t stride);

  // Counts the experts of one more token.
  void count(const int* used, int num_used);
  // Adds the counts, times their weights, to `scores`, (stride).
  void add_to(float* scores) const;
  // Moves the weights by the error of the scores from before the last count, (stride).
  void follow(const float* error);

 private:
  int num_spans_;
  std::vector<float> weights_[kSpans], counts_[kSpans], previous_[kSpans];
};

}  // namespace sharpi
