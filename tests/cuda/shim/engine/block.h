// The one block that runs at a time: its threads, its warps, and the clock that orders what they
// do.
//
// The clock steps whenever threads synchronise. What happened at or before the reading kept at such
// a step happened before everything after it, for the threads that took part.
#pragma once
#include <cstring>

#include "../abi.h"
#include "fiber.h"

namespace emulator {

constexpr unsigned kWarpSize = 32;
constexpr unsigned kMaxThreads = 1024;

enum class State : uint8_t { kReady, kAtBarrier, kAtWarp, kDone };

// Copies what a lane gives: mostly one word.
inline void copy_given(void* to, const void* from, int size) {
  if (size == 4) memcpy(to, from, 4);
  else memcpy(to, from, size);
}

struct Thread {
  Fiber* fiber = nullptr;  // of a thread that has begun
  unsigned number = 0;     // in the block
  State state = State::kDone;
  Site site{};             // where it waits
  bool has_begun = false;  // earlier launches have ended, for all it knows
  Vote vote{};
  int value = 0;      // its vote, and later the outcome
  unsigned mask = 0;  // the lanes it wants to meet
  int size = 0;       // of what it gives
  alignas(16) unsigned char given[32], taken[32];

  void give(const void* bytes, int num_bytes) { copy_given(given, bytes, size = num_bytes); }
  unsigned warp() const { return number / kWarpSize; }
  unsigned lane() const { return number % kWarpSize; }
};

struct Warp {
  unsigned alive = 0, arrived = 0;  // lanes
  uint32_t synced = 0;              // the clock at its last __syncwarp
};

struct Block {
  Thread threads[kMaxThreads];
  Warp warps[kMaxThreads / kWarpSize];
  Thread* running = nullptr;  // null while the scheduler does
  bool is_dependent = false;  // the launch may begin before earlier ones have ended
  unsigned num_threads = 0, num_alive = 0, num_waiting = 0;
  Body body{};
  uint32_t clock = 1;
  uint32_t num_begun = 0;  // blocks of this launch
  // The clock then; `synced`: at the last barrier of all threads, `fenced`: at a thread's last
  // fence.
  uint32_t launch_began = 0, began = 0, synced = 0, fenced = 0;
};

extern Block block;

// The clock before it steps.
inline uint32_t tick() { return block.clock++; }

bool same(Site a, Site b);

// Lets the next thread run; returns when the calling thread may go on.
void give_way();

// As give_way, for ever: the thread has ended, or the launch has failed.
[[noreturn]] void give_up();

// Runs the block `index` to its end, or to the launch's first fault.
void run_block(uint3 index, unsigned order);

}  // namespace emulator
