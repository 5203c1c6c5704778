#include "pool.h"

#include <algorithm>

#include "scheduling.h"

namespace sharpi {
namespace {

// How long a thread spins at a barrier before it sleeps. Long spins keep threads that finish microseconds apart from
// sleeping at all, a tenth of the speed on a quiet machine; but beside a busy neighbour a thread that spins keeps the core
// from the one it waits for. So a wait that ends in sleep makes the next ones short, and every one that does not, longer.
constexpr int kFewestSpins = 100;
constexpr int kMostSpins = 4000;
constexpr int kMoreSpins = 20;
constexpr int kIdleSpins = 2000;  // between two tokens, while the caller samples

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// What a thread fetches while it waits, a few lines at a time: faster ones would be dropped. Nothing is touched, so the
// memory may be gone.
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

// Returns once `value` is no longer `old`: true when spinning was enough, false after sleep.
bool wait_change(std::atomic<uint32_t>& value, uint32_t old, int spins, Bytes soon = {}) {
  Fetch fetch(soon);
  for (int i = 0; i < spins; i++) {
    if (value.load(std::memory_order_acquire) != old) return true;
    fetch.some();
    relax();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
  return false;
}

void wait_and_learn(std::atomic<uint32_t>& value, uint32_t old, int& spins, Bytes soon = {}) {
  const bool enough = wait_change(value, old, spins, soon);
  spins = enough ? std::min(kMostSpins, spins + kMoreSpins) : kFewestSpins;
}

constexpr uint64_t pack(uint32_t begin, uint32_t end) { return uint64_t(begin) << 32 | end; }
constexpr uint32_t first(uint64_t range) { return uint32_t(range >> 32); }
constexpr uint32_t last(uint64_t range) { return uint32_t(range); }

}  // namespace

Pool::Pool(int num_threads) : shares_(num_threads) {
  for (int i = 1; i < num_threads; i++) threads_.emplace_back([this, i] { serve(i); });
}

Pool::~Pool() {
  stop_ = true;
  for (int i = 1; i < size(); i++) call(i);
  for (auto& thread : threads_) thread.join();
}

void Pool::call(int thread) {
  shares_[thread].round.fetch_add(1, std::memory_order_release);
  shares_[thread].round.notify_one();
}

void Pool::serve(int thread) {
  prefer_short_slices();
  for (uint32_t seen = 0;; seen++) {
    wait_change(shares_[thread].round, seen, kIdleSpins, shares_[thread].soon);
    if (stop_) return;
    walk(thread);
    finished_.fetch_add(1, std::memory_order_release);
    finished_.notify_one();
  }
}

void Pool::run(const Stages& stages, const Step& step, int num_threads, std::vector<Worker>& workers) {
  prefer_short_slices();
  stages_ = &stages, step_ = &step, workers_ = &workers;
  active_ = num_threads < size() ? num_threads : size();
  arrived_ = 0, finished_ = 0;
  for (int i = 1; i < active_; i++) call(i);
  walk(0);
  for (uint32_t done; (done = finished_.load(std::memory_order_acquire)) + 1 < uint32_t(active_);)
    wait_and_learn(finished_, done, shares_[0].spins);
}

void Pool::walk(int thread) {
  bool parallel = false;  // whether the stage before was
  for (size_t i = 0; i < stages_->size(); i++) {
    const Stage& stage = *(*stages_)[i];
    const int most = stage.num_tasks(*step_);
    if (active_ > 1 && (parallel || most > 1)) barrier(i, thread);
    parallel = most > 1;
    if (active_ > 1 && parallel) run_share(stage, thread);
    else if (thread == 0 && most > 0) run_alone(stage);
  }
  if (active_ > 1 && parallel) barrier(stages_->size(), thread);
  shares_[thread].soon = reads_soon(0, thread);
}

// What the thread reads first of the next stage that threads share, from stage `stage` on.
Bytes Pool::reads_soon(size_t stage, int thread) const {
  for (; stage < stages_->size(); stage++)
    if (const int tasks = (*stages_)[stage]->num_tasks(*step_); tasks > 1)
      return (*stages_)[stage]->reads_first(*step_, first_task(tasks, thread));
  return {};
}

void Pool::run_alone(const Stage& stage) {
  const int tasks = stage.num_ready_tasks(*step_);
  for (int i = 0; i < tasks; i++) stage.run(*step_, i, i + 1 < tasks ? i + 1 : -1, (*workers_)[0]);
}

void Pool::run_share(const Stage& stage, int thread) {
  int task, next;
  while (take(thread, &task, &next)) stage.run(*step_, task, next, (*workers_)[thread]);
  for (int i = 1; i < active_; i++)
    while (steal((thread + i) % active_, &task)) stage.run(*step_, task, -1, (*workers_)[thread]);
}

// All threads meet; the last to arrive deals the tasks of stage `next`, which may be past the end.
void Pool::barrier(size_t next, int thread) {
  const uint32_t phase = phase_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < active_)
    return wait_and_learn(phase_, phase, shares_[thread].spins, reads_soon(next, thread));
  arrived_.store(0, std::memory_order_relaxed);
  deal(next < stages_->size() ? (*stages_)[next]->num_ready_tasks(*step_) : 0);
  phase_.store(phase + 1, std::memory_order_release);
  phase_.notify_all();
}

void Pool::deal(int num_tasks) {
  for (int i = 0; i < active_; i++)
    shares_[i].range.store(pack(first_task(num_tasks, i), first_task(num_tasks, i + 1)), std::memory_order_relaxed);
}

bool Pool::take(int thread, int* task, int* next) {
  auto& range = shares_[thread].range;
  uint64_t r = range.load(std::memory_order_relaxed);
  do {
    if (first(r) >= last(r)) return false;
  } while (!range.compare_exchange_weak(r, pack(first(r) + 1, last(r)), std::memory_order_relaxed));
  *task = int(first(r));
  *next = first(r) + 1 < last(r) ? *task + 1 : -1;
  return true;
}

bool Pool::steal(int victim, int* task) {
  auto& range = shares_[victim].range;
  uint64_t r = range.load(std::memory_order_relaxed);
  do {
    if (first(r) >= last(r)) return false;
  } while (!range.compare_exchange_weak(r, pack(first(r), last(r) - 1), std::memory_order_relaxed));
  *task = int(last(r) - 1);
  return true;
}

}  // namespace sharpi
