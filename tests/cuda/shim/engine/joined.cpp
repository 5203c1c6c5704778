#include "joined.h"

#include <unordered_map>
#include <vector>

#include "block.h"

namespace emulator {
namespace {

struct Interval {
  uint32_t began, fenced;  // the clock at a block's begin, and at its last fence before it arrived
};

std::unordered_map<const void*, std::vector<Interval>> arrivals;
std::vector<Interval> joined;
bool joined_all = false;  // all blocks of the launch
uint32_t joined_by = 0;   // the begin of the block that `joined` is for

}  // namespace

bool is_joined(uint32_t stamp, bool by_several) {
  if (joined_by != block.began || (by_several && !joined_all)) return false;
  for (const Interval& each : joined)
    if (each.began <= stamp && stamp <= each.fenced) return true;
  return false;
}

void forget_arrivals() {
  arrivals.clear();
  joined_by = 0;
}

}  // namespace emulator

void emulator_fence() { emulator::block.fenced = emulator::tick(); }

void emulator_arrive(const void* counter) {
  using emulator::block;
  emulator::arrivals[counter].push_back({block.began, block.fenced});
  emulator::tick();
}

void emulator_join(const void* counter) {
  using emulator::block;
  if (emulator::joined_by == block.began) return;  // another thread of the block has
  emulator::joined_by = block.began;
  emulator::joined = emulator::arrivals[counter];
  emulator::joined_all = emulator::joined.size() == block.num_begun;
}
