// The thread pool: persistent threads that go through a program's stages together.
#pragma once
#include <atomic>
#include <thread>
#include <vector>

#include "barrier.h"
#include "runtime/stage.h"
#include "shares.h"
#include "waiting.h"

namespace sharpi {

class Pool {
 public:
  // `places` has an entry for each thread, the caller of run() being the first.
  explicit Pool(const std::vector<ThreadPlace>& places);
  // Threads about which nothing is known: all run anywhere, equally fast.
  explicit Pool(int num_threads);
  ~Pool();
  // Runs all stages on the first `num_threads` threads, the caller being one of them. Returns false
  // if an interrupt ended the run between two layers.
  bool run(const Stages& stages, const Step& step, int num_threads, std::vector<Worker>& workers);
  int size() const { return int(threads_.size()) + 1; }
  // Ends this run, or the next one, at the next layer; any thread may call it. It lasts until it is
  // taken back.
  void interrupt(bool wanted) { interrupted_.store(wanted, std::memory_order_relaxed); }
  // Returns the fraction of the current run that is done, 0 to 1, up to the last layer begun.
  float progress() const { return progress_.load(std::memory_order_relaxed); }
  const Shares& shares() const { return shares_; }

 private:
  // One thread's own: `round` counts the runs that the thread is called to, so that threads that a
  // run does not need stay asleep.
  struct alignas(64) ThreadState {
    std::atomic<uint32_t> round{0};
    SpinBudget budget;
    Bytes soon;  // the memory it reads first if the same program runs again
    std::vector<int> cores;
  };

  void serve(int thread);
  void call(int thread);
  void stay_on_cores();
  void walk(int thread);
  size_t next_parallel(size_t stage) const;
  void run_alone(size_t begin, size_t end, int thread);
  void run_share(const Stage& stage, int thread);
  size_t barrier(size_t begin, size_t end, int thread);
  int num_tasks_now(size_t stage) const;
  bool ends_before(size_t stage);
  Bytes reads_first(size_t stage, int thread) const;

  std::vector<ThreadState> states_;
  Shares shares_;
  Barrier barrier_;
  Waiting waiting_;
  std::vector<std::thread> threads_;
  std::thread::id caller_;  // of the last run
  alignas(64) std::atomic<uint32_t> finished_{0};
  std::atomic<bool> stop_{false};
  // Read and written once a layer, apart from what the barriers share.
  alignas(64) std::atomic<bool> interrupted_{false};
  std::atomic<float> progress_{0};
  // Written by the one thread that runs while the others wait, and read by all behind a barrier.
  bool ends_ = false;
  size_t dealt_ = 0;  // the stage whose tasks the shares are
  const Stages* stages_ = nullptr;
  const Step* step_ = nullptr;
  std::vector<Worker>* workers_ = nullptr;
  int active_ = 1;
};

}  // namespace sharpi
