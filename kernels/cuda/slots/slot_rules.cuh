// The decisions of the slot policies, as tests/experts/reference defines them.
// For one warp; every lane gets the same arguments.
#pragma once
#include "slot_rules.h"
#include "slot_state.cuh"

namespace sharpi {

constexpr int kNone = 0x7fffffff, kNoClock = -2;

// The position in an order: the lower key comes first, then the older stamp, then the lower id.
struct Rank {
  int key, stamp, id;

  __device__ __forceinline__ bool before(const Rank& other) const {
    if (key != other.key) return key < other.key;
    return stamp != other.stamp ? stamp < other.stamp : id < other.id;
  }
};

// Returns the first expert, in that order, of those for which `may` holds, or -1.
template <class May, class Key>
__device__ __forceinline__ int first_of(const Slots& s, May may, Key key) {
  Rank best = {kNone, kNone, kNone};
  for (int e = threadIdx.x; e < s.experts; e += kWarp) {
    if (!may(e)) continue;
    const Rank rank = {key(e), s.stamp[e], e};
    if (rank.before(best)) best = rank;
  }
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const Rank other = {__shfl_xor_sync(kFullWarp, best.key, offset),
                        __shfl_xor_sync(kFullWarp, best.stamp, offset),
                        __shfl_xor_sync(kFullWarp, best.id, offset)};
    if (other.before(best)) best = other;
  }
  return best.id == kNone ? -1 : best.id;
}

// Returns true if the policy counts uses that decay.
__device__ __forceinline__ bool decays(int kind) { return kind == kSlru || kind == kLfru; }

// Begins a token's use: from now on a use weighs more. Once in a while all counts are scaled down.
__device__ __forceinline__ void grow_weight(const Slots& s, int kind) {
  const float weight = mul_as_cpu(s.head->weight, kind == kSlru ? kSlruGrowth : kLfruGrowth);
  const bool is_large = weight >= kLargestWeight;
  const float scale = __fdiv_rn(1.f, weight);
  for (int e = threadIdx.x; is_large && e < s.experts; e += kWarp)
    s.frequency[e] = mul_as_cpu(s.frequency[e], scale);
  __syncwarp();
  if (threadIdx.x == 0) s.head->weight = is_large ? 1.f : weight;
  __syncwarp();
}

// slru: moves an expert into the protected segment; a full segment gives up its oldest expert.
__device__ __forceinline__ void promote(const Slots& s, int expert) {
  if (s.is_protected(expert)) return;
  const int num_slots = s.head->num_slots, now = s.head->num_protected + 1;
  __syncwarp();
  if (threadIdx.x == 0) s.flags[expert] |= kProtected, s.head->num_protected = now;
  __syncwarp();
  if (now <= num_slots - max(1, num_slots / kProbationaryPart)) return;
  const int oldest = first_of(
      s, [&](int e) { return s.flags[e] == kProtected && e != expert; }, [](int) { return 0; });
  if (oldest < 0) return;
  __syncwarp();
  if (threadIdx.x == 0) {
    s.flags[oldest] = 0, s.head->num_protected = now - 1;
    s.stamp[oldest] = s.head->clock;
  }
  __syncwarp();
}

// A policy and everything that it changes. `scores`: learned-keep's scores of all experts. `busy`:
// the clock at which the experts in use now were last used.
struct Policy {
  Slots s;
  Locations locations;
  Tables tables;
  Loads loads;
  int kind, has_admission = 0;
  const float* scores = nullptr;
  int busy = kNoClock, num_loads = 0, num_over_bus = 0;
  bool fills = false;  // the experts that it inserts are not needed now

  __device__ __forceinline__ int key(int e) const {
    if (kind == kLru) return 0;
    if (kind == kLearnedKeep) return key_of(scores[e]);
    if (kind == kSlru)
      return key_of(s.is_protected(e) ? mul_as_cpu(kProtection, s.frequency[e]) : s.frequency[e]);
    return key_of(__fdiv_rn(s.frequency[e], __int2float_rn(1 + s.head->clock - s.last_used[e])));
  }

  // Returns the expert to evict, or -1.
  __device__ __forceinline__ int victim() const {
    return first_of(
        s, [&](int e) { return s.resident(e) && !s.pinned(e) && s.last_used[e] != busy; },
        [&](int e) { return key(e); });
  }

  __device__ __forceinline__ bool admits(int expert, int leaves) const {
    if (s.pinned(expert)) return true;
    if (kind == kStatic) return false;
    if (kind != kSlru) return kind != kLearnedKeep;
    return !has_admission || key_of(s.frequency[expert]) > key_of(s.frequency[leaves]);
  }

  __device__ __forceinline__ int early_slot_of(int expert) const {
    const int lane = threadIdx.x;
    const bool is_it = lane < s.head->num_early && s.head->early[lane] == expert;
    return __ffs(int(__ballot_sync(kFullWarp, is_it))) - 1;
  }

  __device__ __forceinline__ void evict(int expert) {
    __syncwarp();
    if (threadIdx.x == 0) {
      s.slot_of[expert] = -1;
      s.head->num_protected -= s.is_protected(expert);
      s.flags[expert] &= ~kProtected;
      tables.put(expert, expert);
    }
    __syncwarp();
  }

  // Gives `expert` the slot of `leaves`, or where that is -1 the first free slot.
  __device__ __forceinline__ void insert(int expert, int leaves) {
    const int slot = leaves < 0 ? s.head->num_resident : s.slot_of[leaves];
    const int early = early_slot_of(expert);
    if (leaves >= 0) evict(leaves);
    __syncwarp();
    if (threadIdx.x == 0) {
      s.head->num_resident += leaves < 0;
      s.slot_of[expert] = slot;
      s.head->count(kFills) += fills;
      s.head->count(kLoadsFromEarly) += early >= 0;
      loads.set(num_loads, expert, locations.slot(slot),
                early < 0 ? expert : locations.early_slot(early));
      tables.put(expert, locations.slot(slot));
    }
    __syncwarp();
    num_loads++, num_over_bus += early < 0;
    if (kind == kSlru && s.pinned(expert)) promote(s, expert);
  }

  // Gives a missed expert, or one that is to be pinned, a slot if the policy allows it.
  __device__ __forceinline__ void load_if_allowed(int expert) {
    if (s.has_free()) {
      if (kind != kStatic || s.pinned(expert)) insert(expert, -1);
      return;
    }
    const int leaves = victim();
    if (leaves >= 0 && admits(expert, leaves)) insert(expert, leaves);
  }
};

}  // namespace sharpi
