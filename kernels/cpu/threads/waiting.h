// How the pool's threads wait for each other: they spin, make sure that the other threads can run,
// and finally sleep.
#pragma once
#include <atomic>
#include <chrono>
#include <vector>

#include "runtime/stage.h"
#include "scheduling.h"

namespace sharpi {

// The number of times that one thread spins for one purpose; learned from the sleeps that follow.
struct SpinBudget {
  int spins, most_spins;
};

class Waiting {
 public:
  explicit Waiting(int num_threads) : places_(num_threads) {}
  // Begins work: moves the thread to a core of its own, if there is one.
  void begin(int thread);
  // `see` notes the core that the thread works on; `forget`: it does not work until the next
  // begin().
  void see(int thread) { places_[thread].core.store(current_core(), std::memory_order_relaxed); }
  void forget(int thread) { places_[thread].core.store(kNoCore, std::memory_order_relaxed); }
  // Returns once `value` is no longer `old`; prefetches `soon` meanwhile.
  void wait(std::atomic<uint32_t>& value, uint32_t old, int thread, SpinBudget& budget,
            Bytes soon = {});

 private:
  using Clock = std::chrono::steady_clock;
  struct alignas(64) Place {
    std::atomic<int> core{kNoCore};  // where the thread was last seen at work
    Clock::time_point may_move;      // to another core
  };

  bool let_others_run(int thread, SpinBudget& budget);
  bool is_crowded(int thread) const;
  bool find_core(int thread);

  std::vector<Place> places_;
};

}  // namespace sharpi
