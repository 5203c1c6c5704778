// ThreadPlace: the cores of a thread of the pool, and how fast they are.
#pragma once
#include <cstdint>

namespace sharpi {

// One thread's cores, and what it shares with others. Threads of one node follow each other, and so
// do those of one group.
struct ThreadPlace {
  const int32_t* cores;  // the logical cores that the thread may run on
  int32_t num_cores;     // 0 for any core
  int32_t node;          // NUMA node
  int32_t group;         // threads that share a cache, and meet first at a barrier
  float speed;           // relative to the other threads, above 0
};

// Threads of which nothing is known are grouped by their number.
constexpr int kGroupThreads = 8;

}  // namespace sharpi
