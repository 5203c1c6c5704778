// Operations of a warp: lanes meet, hand over up to 32 bytes each, and go on.
#include "warp.h"

#include <cmath>
#include <cstring>

#include "fault.h"

namespace emulator {
namespace {

constexpr unsigned kFullWarp = 0xffffffffu;

Thread& lane_of_same_warp(const Thread& thread, unsigned lane) {
  return block.threads[thread.warp() * kWarpSize + lane];
}

void check_mask(const Thread& self, unsigned mask, Site site) {
  const unsigned missing = mask & ~block.warps[self.warp()].alive;
  if (!(mask >> self.lane() & 1))
    fail(site, "lane %u is not in the mask %#x of its own warp operation", self.lane(), mask);
  if (missing)
    fail(site, "a warp operation waits for lanes %#x, which have ended or never were", missing);
}

void hand_over(Thread& self, unsigned mask) {
  for (unsigned rest = mask; rest; rest &= rest - 1) {
    Thread& other = lane_of_same_warp(self, __builtin_ctz(rest));
    if (other.mask != mask || !same(other.site, self.site))
      fail(self.site, "lanes meet in different warp operations, here and at line %d",
           other.site.line);
    copy_given(other.taken, other.given, other.size);
    other.state = State::kReady;
  }
}

// Waits until all lanes of `mask` have come; each lane's bytes then lie in its `taken`. Returns
// true to the last one, which has not waited.
bool meet(unsigned mask, Site site) {
  Thread& self = *block.running;
  Warp& warp = block.warps[self.warp()];
  check_mask(self, mask, site);
  self.mask = mask;
  self.site = site;
  warp.arrived |= 1u << self.lane();
  if ((warp.arrived & mask) != mask) {
    self.state = State::kAtWarp;
    give_way();
    return false;
  }
  warp.arrived &= ~mask;
  hand_over(self, mask);
  return true;
}

// Joins what the lanes of a warp have taken as the kernels' loops of shuffles do, in the same
// order.
template <class T, class Joined>
void join_taken(const Thread& self, int width, Joined joined) {
  T values[kWarpSize], next[kWarpSize];
  for (unsigned lane = 0; lane < kWarpSize; lane++)
    memcpy(&values[lane], lane_of_same_warp(self, lane).taken, sizeof(T));
  for (int offset = width / 2; offset > 0; offset /= 2) {
    for (unsigned lane = 0; lane < kWarpSize; lane++)
      next[lane] = joined(values[lane], values[lane ^ offset]);
    memcpy(values, next, sizeof values);
  }
  for (unsigned lane = 0; lane < kWarpSize; lane++)
    memcpy(lane_of_same_warp(self, lane).taken, &values[lane], sizeof(T));
}

template <class T, class Joined>
T join_lanes(T value, int width, Site site, Joined joined) {
  Thread& self = *block.running;
  self.give(&value, sizeof value);
  if (meet(kFullWarp, site)) join_taken<T>(self, width, joined);
  memcpy(&value, self.taken, sizeof value);
  return value;
}

int source_of(int lane, Take take, int operand, int width) {
  const int first = lane & ~(width - 1);
  int source = lane;
  if (take == Take::kLane) return first | (operand & (width - 1));
  if (take == Take::kXor) source = lane ^ operand;
  if (take == Take::kDown) source = lane + operand;
  if (take == Take::kUp) return lane - operand >= first ? lane - operand : lane;
  return source < first + width ? source : lane;
}

}  // namespace

bool meet_warp(const void* given, int size, Site site) {
  block.running->give(given, size);
  return meet(kFullWarp, site);
}

}  // namespace emulator

using emulator::block;
using emulator::Site;
using emulator::Take;
using emulator::Thread;

void emulator_exchange(unsigned mask, const void* given, void* taken, int size, int source,
                       Site site) {
  block.running->give(given, size);
  emulator::meet(mask, site);
  const Thread& self = *block.running;
  if (!(mask >> source & 1))
    emulator::fail(site, "a shuffle reads lane %d, which is not in its mask", source);
  emulator::copy_given(taken, emulator::lane_of_same_warp(self, source).taken, size);
}

void emulator_shuffle(unsigned mask, const void* given, void* taken, int size, Take take,
                      int operand, int width, Site site) {
  const int source = emulator::source_of(int(block.running->lane()), take, operand, width);
  emulator_exchange(mask, given, taken, size, source, site);
}

void emulator_exchange_addresses(const void* given, const void** taken, const int* sources,
                                 int count, Site site) {
  emulator::meet_warp(&given, sizeof given, site);
  for (int i = 0; i < count; i++) memcpy(&taken[i], emulator::taken_by(sources[i]), sizeof given);
}

unsigned emulator_ballot(unsigned mask, int value, Site site) {
  const Thread& self = *block.running;
  block.running->give(&value, sizeof value);
  emulator::meet(mask, site);
  unsigned votes = 0;
  for (unsigned rest = mask; rest; rest &= rest - 1) {
    const unsigned lane = __builtin_ctz(rest);
    int other;
    memcpy(&other, emulator::lane_of_same_warp(self, lane).taken, sizeof other);
    votes |= unsigned(other != 0) << lane;
  }
  return votes;
}

void emulator_sync_warp(unsigned mask, Site site) {
  const unsigned warp = block.running->warp();
  if (emulator::meet(mask, site)) block.warps[warp].synced = emulator::tick();
}

float emulator_sum_floats(float value, int width, Site site) {
  return emulator::join_lanes(value, width, site, [](float a, float b) { return a + b; });
}

float emulator_max_floats(float value, int width, Site site) {
  return emulator::join_lanes(value, width, site, [](float a, float b) { return fmaxf(a, b); });
}

int emulator_max_integers(int value, int width, Site site) {
  return emulator::join_lanes(value, width, site, [](int a, int b) { return a > b ? a : b; });
}
