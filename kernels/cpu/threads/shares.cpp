#include "shares.h"

#include <algorithm>
#include <cmath>

namespace sharpi {
namespace {

constexpr uint64_t pack(uint32_t begin, uint32_t end) { return uint64_t(begin) << 32 | end; }
constexpr uint32_t first(uint64_t range) { return uint32_t(range >> 32); }
constexpr uint32_t last(uint64_t range) { return uint32_t(range); }

// Stages with few tasks say little about speed; shares change after so many tasks a thread, and
// only where a thread did so much more or less than it was dealt.
constexpr int kFewestTasks = 4;
constexpr uint64_t kTasksToLearn = 512;
constexpr double kTolerance = 0.1, kRate = 0.5, kLeast = 0.05;

}  // namespace

Shares::Shares(const std::vector<ThreadPlace>& places)
    : shares_(places.size()), dealt_(places.size()), ends_(places.size() + 1) {
  for (const ThreadPlace& place : places) {
    nodes_.push_back(place.node);
    speeds_.push_back(place.speed);
  }
  nominal_ = speeds_;
  choose(int(places.size()));
}

void Shares::choose(int num_threads) {
  if (active_ == num_threads) return;
  active_ = num_threads;
  set_ends();
}

// Returns the factor from the speeds of a node's threads to their parts of its tasks.
double Shares::node_speed(int node) const {
  double nominal = 0, now = 0;
  for (int i = 0; i < active_; i++)
    if (nodes_[i] == node) nominal += nominal_[i], now += speeds_[i];
  return nominal / now;
}

// Keeps the sum of a node's speeds, and each thread above a least speed: one that was never given
// work could not show that it is fast again.
void Shares::normalise() {
  std::vector<double> factors;
  for (int i = 0; i < active_; i++) factors.push_back(node_speed(nodes_[i]));
  for (int i = 0; i < active_; i++)
    speeds_[i] = std::max(kLeast * nominal_[i], speeds_[i] * factors[i]);
}

void Shares::set_ends() {
  double total = 0, sum = 0;
  for (int i = 0; i < active_; i++) total += nominal_[i];
  const double whole = double(uint64_t(1) << kFractionBits);
  for (int i = 0; i < active_; i++) {
    ends_[i] = uint64_t(std::ceil(sum / total * whole));
    sum += speeds_[i] * node_speed(nodes_[i]);
  }
  ends_[active_] = uint64_t(1) << kFractionBits;
}

void Shares::deal(int num_tasks) {
  for (int i = 0; i < active_; i++)
    shares_[i].range.store(pack(first_task(num_tasks, i), first_task(num_tasks, i + 1)),
                           std::memory_order_relaxed);
  counts_ = num_tasks >= kFewestTasks * active_;
  if (!counts_) return;
  counted_ += num_tasks;
  for (int i = 0; i < active_; i++)
    dealt_[i] += first_task(num_tasks, i + 1) - first_task(num_tasks, i);
}

bool Shares::take(int thread, int* task, int* next) {
  auto& range = shares_[thread].range;
  uint64_t r = range.load(std::memory_order_relaxed);
  do {
    if (first(r) >= last(r)) return false;
  } while (!range.compare_exchange_weak(r, pack(first(r) + 1, last(r)), std::memory_order_relaxed));
  shares_[thread].done += counts_;
  *task = int(first(r));
  *next = first(r) + 1 < last(r) ? *task + 1 : -1;
  return true;
}

bool Shares::steal(int thread, int* task) {
  for (int distance = 1; distance < active_; distance++)
    for (const int victim : {thread + distance, thread - distance})
      if (victim >= 0 && victim < active_ && steal_from(victim, task)) {
        shares_[thread].done += counts_;
        return true;
      }
  return false;
}

bool Shares::steal_from(int victim, int* task) {
  auto& range = shares_[victim].range;
  uint64_t r = range.load(std::memory_order_relaxed);
  do {
    if (first(r) >= last(r)) return false;
  } while (!range.compare_exchange_weak(r, pack(first(r), last(r) - 1), std::memory_order_relaxed));
  *task = int(last(r) - 1);
  return true;
}

bool Shares::is_uneven() const {
  for (int i = 0; i < active_; i++) {
    const double dealt = double(std::max<uint64_t>(dealt_[i], 1));
    if (std::abs(double(shares_[i].done) / dealt - 1) > kTolerance) return true;
  }
  return false;
}

void Shares::learn() {
  if (active_ < 2 || counted_ < kTasksToLearn * active_) return;
  if (is_uneven()) {
    for (int i = 0; i < active_; i++) {
      const double ratio = double(shares_[i].done) / double(std::max<uint64_t>(dealt_[i], 1));
      speeds_[i] *= 1 + kRate * (ratio - 1);
    }
    normalise();
    set_ends();
  }
  for (int i = 0; i < active_; i++) shares_[i].done = dealt_[i] = 0;
  counted_ = 0;
}

}  // namespace sharpi
