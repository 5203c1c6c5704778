// The tasks of a stage, dealt to the threads in contiguous shares by speed.
//
// Each thread reads linearly through its share; a thread that is done takes tasks from the end of
// another thread's share. Which thread runs a task never changes a result.
#pragma once
#include <atomic>
#include <cstdint>
#include <vector>

#include "thread_place.h"

namespace sharpi {

class Shares {
 public:
  explicit Shares(const std::vector<ThreadPlace>& places);

  // Prepares for runs of the first `num_threads` threads.
  void choose(int num_threads);
  // Returns the first task of a thread's share; that of thread `num_threads` is the end.
  int first_task(int num_tasks, int thread) const {
    return int(uint64_t(num_tasks) * ends_[thread] >> kFractionBits);
  }
  void deal(int num_tasks);
  // Takes the next task of the thread's own share; `next` is the one after it, or -1.
  bool take(int thread, int* task, int* next);
  // Takes a task from the end of another thread's share, nearest threads first.
  bool steal(int thread, int* task);
  // Adapts the shares to what the threads did in the runs since the last change.
  void learn();
  int node(int thread) const { return nodes_[thread]; }
  // Returns the thread's part of all tasks, 0 to 1.
  double fraction(int thread) const {
    return double(ends_[thread + 1] - ends_[thread]) / (uint64_t(1) << kFractionBits);
  }

 private:
  static constexpr int kFractionBits = 31;
  // One thread's tasks: begin << 32 | end. The owner takes from the front, others from the back.
  struct alignas(64) Share {
    std::atomic<uint64_t> range{0};
    uint64_t done = 0;  // by this thread, of its own share and of others'; written by it alone
  };

  bool steal_from(int victim, int* task);
  void normalise();
  void set_ends();
  double node_speed(int node) const;
  bool is_uneven() const;

  std::vector<Share> shares_;
  std::vector<int32_t> nodes_;
  std::vector<double> speeds_;
  std::vector<double> nominal_;  // as given: a node's part of the tasks never changes
  std::vector<uint64_t> dealt_;  // tasks of the stages that are counted
  std::vector<uint64_t> ends_;   // fractions, one more than threads
  uint64_t counted_ = 0;
  bool counts_ = false;  // true while the threads run a stage that is counted
  int active_ = 0;
};

}  // namespace sharpi
