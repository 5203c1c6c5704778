// The barrier between two stages: a tree of two levels, so that threads of many cores do not all
// write the same cache line.
#pragma once
#include <atomic>
#include <vector>

#include "thread_place.h"
#include "waiting.h"

namespace sharpi {

class Barrier {
 public:
  explicit Barrier(const std::vector<ThreadPlace>& places);
  // Prepares for runs of the first `num_threads` threads; no thread may be waiting.
  void choose(int num_threads);
  // Returns true for the last thread to arrive, which then calls open(); all others wait.
  bool arrive(int thread);
  // Returns the phase to wait for; a thread asks before it arrives.
  uint32_t phase(int thread) const { return group(thread).phase.load(std::memory_order_acquire); }
  // Waits until the barrier opens; prefetches `soon` meanwhile.
  void wait(Waiting& waiting, int thread, uint32_t phase, SpinBudget& budget, Bytes soon) {
    waiting.wait(group(thread).phase, phase, thread, budget, soon);
  }
  void open();

 private:
  struct alignas(64) Group {
    std::atomic<int> arrived{0};
    int size = 0;  // threads of the current runs
    alignas(64) std::atomic<uint32_t> phase{0};
  };

  Group& group(int thread) { return groups_[group_of_[thread]]; }
  const Group& group(int thread) const { return groups_[group_of_[thread]]; }

  std::vector<int> group_of_;
  std::vector<Group> groups_;
  alignas(64) std::atomic<int> groups_arrived_{0};
  int groups_used_ = 0;
  int active_ = 0;
};

}  // namespace sharpi
