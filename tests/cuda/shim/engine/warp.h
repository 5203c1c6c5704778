// Meetings of a whole warp.
#pragma once
#include "block.h"

namespace emulator {

// Gives `size` bytes (up to 32), and returns once all 32 lanes have; true to the last one.
bool meet_warp(const void* given, int size, Site site);

// What a lane of the running thread's warp gave at the last meeting of both, until the running
// thread's next operation.
inline const void* taken_by(unsigned lane) {
  return block.threads[block.running->warp() * kWarpSize + lane].taken;
}

}  // namespace emulator
