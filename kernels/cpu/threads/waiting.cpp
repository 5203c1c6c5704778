#include "waiting.h"

#include <algorithm>

#include "relax.h"

namespace sharpi {
namespace {

// Threads that wait a few microseconds for each other should not sleep at all: on an idle machine
// that would cost a tenth of the speed of a large model, and most of a small one's. But on a busy
// machine a spinning thread may keep the core from the thread that it waits for. So a sleep that
// turns out short doubles the next spins, and a long one reduces them to the fewest.
constexpr int kFewestSpins = 100;
constexpr auto kShortSleep = std::chrono::microseconds(300);
constexpr auto kBetweenMoves = std::chrono::microseconds(200);

// Prefetches memory while a thread waits, a few lines at a time, because faster ones would be
// dropped. Nothing is read, so the memory may be gone.
class Fetch {
 public:
  explicit Fetch(Bytes bytes) : line_(bytes.at), end_(bytes.at + std::min(bytes.count, kMost)) {}
  void some() {
    for (int i = 0; i < kLines && line_ < end_; i++, line_ += 64) __builtin_prefetch(line_, 0, 2);
  }

 private:
  static constexpr size_t kMost = 256 << 10;  // of a cache that others use as well
  static constexpr int kLines = 4;
  const uint8_t *line_, *end_;
};

}  // namespace

void Waiting::begin(int thread) {
  see(thread);
  if (is_crowded(thread)) find_core(thread);
}

void Waiting::wait(std::atomic<uint32_t>& value, uint32_t old, int thread, SpinBudget& budget,
                   Bytes soon) {
  Fetch fetch(soon);
  for (int i = 0; i < budget.spins; i++) {
    if (value.load(std::memory_order_acquire) != old) return;
    if (i == kFewestSpins && !let_others_run(thread, budget)) break;
    fetch.some();
    relax();
  }
  const auto begin = Clock::now();
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
  const bool was_short = Clock::now() - begin < kShortSleep;
  budget.spins = was_short ? std::min(budget.most_spins, 2 * budget.spins) : kFewestSpins;
}

// Returns true if the thread may go on spinning. On a newly found core of its own it spins for
// long, because a sleep may end on another core.
bool Waiting::let_others_run(int thread, SpinBudget& budget) {
  if (!is_crowded(thread)) {
    give_way();  // to a thread that waits for this core and was not seen yet
    return true;
  }
  if (!find_core(thread)) return false;
  budget.spins = budget.most_spins;
  return true;
}

// Returns true if another thread was last seen on this thread's core: it cannot continue while this
// one spins.
bool Waiting::is_crowded(int thread) const {
  const int own = current_core();
  for (int i = 0; i < int(places_.size()); i++)
    if (i != thread && places_[i].core.load(std::memory_order_relaxed) == own)
      return own != kNoCore;
  return false;
}

// Moves to a core where no other thread was seen, if there is one.
bool Waiting::find_core(int thread) {
  const auto now = Clock::now();
  if (now < places_[thread].may_move) return false;
  places_[thread].may_move = now + kBetweenMoves;
  std::vector<int> others;
  for (int i = 0; i < int(places_.size()); i++)
    if (i != thread) others.push_back(places_[i].core.load(std::memory_order_relaxed));
  return leave_cores(others.data(), int(others.size()));
}

}  // namespace sharpi
