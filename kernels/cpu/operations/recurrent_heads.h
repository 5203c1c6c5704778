// Shared by the recurrent operations with a matrix state: one task per sequence and head, its
// tokens in order, a few at a time, so that prefill and decode give the same bits.
#pragma once
#include <algorithm>
#include <cstring>

#include "recurrent.h"

namespace sharpi {

class RecurrentHeads : public Stage {
 public:
  int num_tasks(const Step& step) const override { return count_runs(step) * heads_; }

  void run(const Step& step, int task, int, Worker&) const override {
    const int head = task % heads_;
    const Run run = find_run(step, task / heads_, offset_);
    float* state = run.state + head * floats_;
    if (run.after) return chain(run, head, step.positions[run.begin] == 0 ? nullptr : state);
    if (step.positions[run.begin] == 0) memset(state, 0, sizeof(float) * floats_);
    for (int t = run.begin; t < run.end; t += kBlock)
      walk(t, std::min(kBlock, run.end - t), head, state);
  }

 protected:
  static constexpr int kBlock = 8;  // tokens that use a panel of the state while it is in the cache

  // A head's state is (keys, values rounded up to vectors), `offset` floats into a sequence's
  // memory.
  RecurrentHeads(int heads, int keys, int values, int64_t offset)
      : heads_(heads), floats_(size_t(keys) * round_to_vectors(values)), offset_(offset) {}
  // Goes through up to kBlock tokens of one head, from `first` on.
  virtual void walk(int first, int count, int head, float* state) const = 0;

 private:
  // Leaves the state after each token in the token's own memory. `before` is null for zeros.
  void chain(const Run& run, int head, const float* before) const {
    for (int t = run.begin; t < run.end; t++) {
      float* after = run.after[t - run.begin] + offset_ + head * floats_;
      if (before) memcpy(after, before, sizeof(float) * floats_);
      else memset(after, 0, sizeof(float) * floats_);
      walk(t, 1, head, after);
      before = after;
    }
  }

  const int heads_;
  const size_t floats_;
  const int64_t offset_;
};

}  // namespace sharpi
