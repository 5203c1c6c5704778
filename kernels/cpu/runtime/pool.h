// The thread pool: persistent threads that go through a program's stages together.
//
// Tasks of a stage are dealt in contiguous shares, so that each thread reads linearly; a thread
// that is done steals from the end of another thread's share.
#pragma once
#include <atomic>
#include <thread>
#include <vector>

#include "stage.h"
#include "waiting.h"

namespace sharpi {

class Pool {
 public:
  explicit Pool(int num_threads);
  ~Pool();
  // Runs all stages on the first `num_threads` threads, the caller being one of them.
  void run(const Stages& stages, const Step& step, int num_threads, std::vector<Worker>& workers);
  int size() const { return int(shares_.size()); }

 private:
  // One thread's part. `range` is begin << 32 | end: the owner takes from the front, thieves from
  // the back. `round` counts the runs that the thread is called to, so that threads that a run does
  // not need stay asleep. `patience` is the thread's own.
  struct alignas(64) Share {
    std::atomic<uint64_t> range{0};
    std::atomic<uint32_t> round{0};
    Patience patience;
    Bytes soon;  // the memory it reads first if the same program runs again
  };

  void serve(int thread);
  void call(int thread);
  void walk(int thread);
  void run_alone(const Stage& stage);
  void run_share(const Stage& stage, int thread);
  void barrier(size_t next, int thread);
  Bytes reads_soon(size_t stage, int thread) const;
  int first_task(int num_tasks, int thread) const {
    return int(int64_t(num_tasks) * thread / active_);
  }
  void deal(int num_tasks);
  bool take(int thread, int* task, int* next);
  bool steal(int victim, int* task);

  std::vector<Share> shares_;
  Waiting waiting_;
  std::vector<std::thread> threads_;
  alignas(64) std::atomic<uint32_t> phase_{0};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> finished_{0};
  std::atomic<bool> stop_{false};
  const Stages* stages_ = nullptr;
  const Step* step_ = nullptr;
  std::vector<Worker>* workers_ = nullptr;
  int active_ = 1;
};

}  // namespace sharpi
