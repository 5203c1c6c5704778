#include "pool.h"

namespace sharpi {
namespace {

constexpr Patience kAtBarrier{1000, 4000};
constexpr Patience kBetweenTokens{4000, 16000};  // while the caller samples

constexpr uint64_t pack(uint32_t begin, uint32_t end) { return uint64_t(begin) << 32 | end; }
constexpr uint32_t first(uint64_t range) { return uint32_t(range >> 32); }
constexpr uint32_t last(uint64_t range) { return uint32_t(range); }

}  // namespace

Pool::Pool(int num_threads) : shares_(num_threads), waiting_(num_threads) {
  for (Share& share : shares_) share.patience = kAtBarrier;
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
  Patience patience = kBetweenTokens;
  for (uint32_t seen = 0;; seen++) {
    waiting_.wait(shares_[thread].round, seen, thread, patience, shares_[thread].soon);
    if (stop_) return;
    waiting_.begin(thread);
    walk(thread);
    waiting_.forget(thread);
    finished_.fetch_add(1, std::memory_order_release);
    finished_.notify_one();
  }
}

void Pool::run(const Stages& stages, const Step& step, int num_threads,
               std::vector<Worker>& workers) {
  prefer_short_slices();
  stages_ = &stages, step_ = &step, workers_ = &workers;
  active_ = num_threads < size() ? num_threads : size();
  arrived_ = 0, finished_ = 0;
  waiting_.see(0);
  for (int i = 1; i < active_; i++) call(i);
  walk(0);
  for (uint32_t done; (done = finished_.load(std::memory_order_acquire)) + 1 < uint32_t(active_);)
    waiting_.wait(finished_, done, 0, shares_[0].patience);
}

void Pool::walk(int thread) {
  bool parallel = false;  // true if the previous stage was
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

// Returns the memory that the thread reads first in the next stage that threads share, from stage
// `stage` on.
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

// Waits until all threads arrive; the last to arrive deals the tasks of stage `next`, which may be
// past the end.
void Pool::barrier(size_t next, int thread) {
  const uint32_t phase = phase_.load(std::memory_order_acquire);
  waiting_.see(thread);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < active_)
    return waiting_.wait(phase_, phase, thread, shares_[thread].patience, reads_soon(next, thread));
  arrived_.store(0, std::memory_order_relaxed);
  deal(next < stages_->size() ? (*stages_)[next]->num_ready_tasks(*step_) : 0);
  phase_.store(phase + 1, std::memory_order_release);
  phase_.notify_all();
}

void Pool::deal(int num_tasks) {
  for (int i = 0; i < active_; i++)
    shares_[i].range.store(pack(first_task(num_tasks, i), first_task(num_tasks, i + 1)),
                           std::memory_order_relaxed);
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
