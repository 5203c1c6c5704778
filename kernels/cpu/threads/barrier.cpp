#include "barrier.h"

#include <algorithm>

namespace sharpi {
namespace {

int count_groups(const std::vector<ThreadPlace>& places) {
  int count = 0;
  for (const ThreadPlace& place : places) count = std::max(count, place.group + 1);
  return count;
}

}  // namespace

Barrier::Barrier(const std::vector<ThreadPlace>& places) : groups_(count_groups(places)) {
  for (const ThreadPlace& place : places) group_of_.push_back(place.group);
  choose(int(places.size()));
}

void Barrier::choose(int num_threads) {
  if (active_ == num_threads) return;
  active_ = num_threads;
  groups_used_ = 0;
  for (Group& group : groups_) group.size = 0;
  for (int i = 0; i < num_threads; i++) groups_used_ += !group(i).size++;
}

bool Barrier::arrive(int thread) {
  Group& own = group(thread);
  if (own.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 < own.size) return false;
  own.arrived.store(0, std::memory_order_relaxed);
  if (groups_arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < groups_used_) return false;
  groups_arrived_.store(0, std::memory_order_relaxed);
  return true;
}

void Barrier::open() {
  for (Group& group : groups_) {
    if (!group.size) continue;
    group.phase.fetch_add(1, std::memory_order_release);
    group.phase.notify_all();
  }
}

}  // namespace sharpi
