#include "pool.h"

namespace sharpi {
namespace {

constexpr SpinBudget kAtBarrier{1000, 4000};
constexpr SpinBudget kBetweenTokens{4000, 16000};  // while the caller samples

std::vector<ThreadPlace> anywhere(int num_threads) {
  std::vector<ThreadPlace> places;
  for (int i = 0; i < num_threads; i++) places.push_back({nullptr, 0, 0, i / kGroupThreads, 1});
  return places;
}

}  // namespace

Pool::Pool(int num_threads) : Pool(anywhere(num_threads)) {}

Pool::Pool(const std::vector<ThreadPlace>& places)
    : states_(places.size()), shares_(places), barrier_(places), waiting_(int(places.size())) {
  for (size_t i = 0; i < places.size(); i++) {
    states_[i].budget = kAtBarrier;
    states_[i].cores.assign(places[i].cores, places[i].cores + places[i].num_cores);
  }
  for (int i = 1; i < int(places.size()); i++) threads_.emplace_back([this, i] { serve(i); });
}

Pool::~Pool() {
  stop_ = true;
  for (int i = 1; i < size(); i++) call(i);
  for (auto& thread : threads_) thread.join();
}

void Pool::call(int thread) {
  states_[thread].round.fetch_add(1, std::memory_order_release);
  states_[thread].round.notify_one();
}

void Pool::serve(int thread) {
  prefer_short_slices();
  stay_on(states_[thread].cores);
  SpinBudget budget = kBetweenTokens;
  for (uint32_t seen = 0;; seen++) {
    waiting_.wait(states_[thread].round, seen, thread, budget, states_[thread].soon);
    if (stop_) return;
    waiting_.begin(thread);
    walk(thread);
    waiting_.forget(thread);
    finished_.fetch_add(1, std::memory_order_release);
    finished_.notify_one();
  }
}

// Binds the caller's thread like the pool's own, unless it was the last caller, too.
void Pool::stay_on_cores() {
  const auto caller = std::this_thread::get_id();
  if (caller != caller_) stay_on(states_[0].cores);
  caller_ = caller;
}

bool Pool::run(const Stages& stages, const Step& step, int num_threads,
               std::vector<Worker>& workers) {
  prefer_short_slices();
  stay_on_cores();
  stages_ = &stages, step_ = &step, workers_ = &workers;
  active_ = num_threads < size() ? num_threads : size();
  shares_.choose(active_), barrier_.choose(active_);
  finished_ = 0, ends_ = false;
  progress_.store(0, std::memory_order_relaxed);
  waiting_.see(0);
  for (int i = 1; i < active_; i++) call(i);
  walk(0);
  for (uint32_t done; (done = finished_.load(std::memory_order_acquire)) + 1 < uint32_t(active_);)
    waiting_.wait(finished_, done, 0, states_[0].budget);
  shares_.learn();
  return !ends_;
}

// Every thread goes from one parallel stage to the next. The last to arrive at the barrier between
// them runs the stages of one task that come in between: it need not hand them to another thread.
void Pool::walk(int thread) {
  size_t stage = next_parallel(0);
  if (thread == 0) run_alone(0, stage, thread);
  if (stage < stages_->size()) stage = barrier(stage, stage, thread);
  while (stage < stages_->size() && !ends_) {
    run_share(*(*stages_)[stage], thread);
    stage = barrier(stage + 1, next_parallel(stage + 1), thread);
  }
  states_[thread].soon = reads_first(next_parallel(0), thread);
}

// Returns the first stage from `stage` on that threads share.
size_t Pool::next_parallel(size_t stage) const {
  if (active_ == 1) return stages_->size();
  while (stage < stages_->size() && (*stages_)[stage]->num_tasks(*step_) < 2) stage++;
  return stage;
}

void Pool::run_alone(size_t begin, size_t end, int thread) {
  for (size_t i = begin; i < end && !(ends_ = ends_ || ends_before(i)); i++) {
    const Stage& stage = *(*stages_)[i];
    const int tasks = stage.num_tasks(*step_) ? stage.num_ready_tasks(*step_) : 0;
    for (int task = 0; task < tasks; task++)
      stage.run(*step_, task, task + 1 < tasks ? task + 1 : -1, (*workers_)[thread]);
  }
}

void Pool::run_share(const Stage& stage, int thread) {
  int task, next;
  while (shares_.take(thread, &task, &next)) stage.run(*step_, task, next, (*workers_)[thread]);
  while (shares_.steal(thread, &task)) stage.run(*step_, task, -1, (*workers_)[thread]);
}

// Waits until all threads arrive and stages [begin, end) are done. Returns the stage that is dealt
// then, which may be past the last: `end`, or a later one where that turned out to have no tasks.
size_t Pool::barrier(size_t begin, size_t end, int thread) {
  const uint32_t phase = barrier_.phase(thread);
  waiting_.see(thread);
  if (!barrier_.arrive(thread)) {
    barrier_.wait(waiting_, thread, phase, states_[thread].budget, reads_first(end, thread));
    return dealt_;
  }
  run_alone(begin, end, thread);
  ends_ = ends_ || ends_before(end);
  int tasks = num_tasks_now(end);
  while (!tasks && end < stages_->size() && !ends_) {
    begin = end + 1, end = next_parallel(begin);
    run_alone(begin, end, thread);
    ends_ = ends_ || ends_before(end);
    tasks = num_tasks_now(end);
  }
  shares_.deal(tasks);
  dealt_ = end;
  barrier_.open();
  return end;
}

// Returns the tasks of a stage whose predecessors are done; none past the last, or if the run ends.
int Pool::num_tasks_now(size_t stage) const {
  if (stage >= stages_->size() || ends_) return 0;
  return (*stages_)[stage]->num_ready_tasks(*step_);
}

// Tells if the run ends before a stage, which may be past the end; shows how far it has come.
bool Pool::ends_before(size_t stage) {
  if (stage >= stages_->size() || !(*stages_)[stage]->may_end_before()) return false;
  progress_.store(float(stage) / float(stages_->size()), std::memory_order_relaxed);
  return interrupted_.load(std::memory_order_relaxed);
}

// Returns the memory that the thread reads first in a stage that threads share.
Bytes Pool::reads_first(size_t stage, int thread) const {
  if (stage >= stages_->size()) return {};
  const int tasks = (*stages_)[stage]->num_tasks(*step_);
  return (*stages_)[stage]->reads_first(*step_, shares_.first_task(tasks, thread));
}

}  // namespace sharpi
