// Between tokens: gives a layer fewer or more slots, or pins its most used experts. One warp.
#include "slot_rules.cuh"

namespace sharpi {

// Returns the next expert to evict when slots go; if all are pinned, the one used least, which
// returns when there is room.
__device__ __forceinline__ int leaves_for_good(const Policy& p) {
  const int victim = p.victim();
  if (victim >= 0) return victim;
  return first_of(p.s, [&](int e) { return p.s.resident(e); }, [&](int e) { return p.s.uses[e]; });
}

// Moves residents of slots that go into slots that became free. `owners` (old slots,).
__device__ __forceinline__ void close_up(Policy& p, int num_slots, int* owners, int most) {
  const int lane = threadIdx.x;
  for (int i = lane; i < most; i += kWarp) owners[i] = -1;
  __syncwarp();
  for (int e = lane; e < p.s.experts; e += kWarp)
    if (p.s.resident(e)) owners[p.s.slot_of[e]] = e;
  __syncwarp();
  int hole = 0;
  for (int slot = num_slots; slot < most; slot++) {
    const int expert = owners[slot];
    if (expert < 0) continue;
    unsigned empty = 0;
    for (; !empty; hole += empty ? 0 : kWarp)
      empty = __ballot_sync(kFullWarp, hole + lane < num_slots && owners[hole + lane] < 0);
    const int target = hole + __ffs(int(empty)) - 1;
    __syncwarp();
    if (lane == 0) {
      owners[target] = expert, p.s.slot_of[expert] = target;
      p.loads.set(p.num_loads, expert, p.locations.slot(target), p.locations.slot(slot));
      p.tables.put(expert, p.locations.slot(target));
    }
    __syncwarp();
    p.num_loads++;
  }
}

// Returns the expert that follows `last` when all are sorted by falling number of uses, lower ids
// first.
__device__ __forceinline__ int next_by_uses(const Slots& s, int last) {
  const int most = last < 0 ? kNone : s.uses[last];
  Rank best = {kNone, 0, kNone};
  for (int e = threadIdx.x; e < s.experts; e += kWarp) {
    const bool is_after = last < 0 || s.uses[e] < most || (s.uses[e] == most && e > last);
    const Rank rank = {-s.uses[e], 0, e};
    if (is_after && rank.before(best)) best = rank;
  }
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const Rank other = {__shfl_xor_sync(kFullWarp, best.key, offset), 0,
                        __shfl_xor_sync(kFullWarp, best.id, offset)};
    if (other.before(best)) best = other;
  }
  return best.id;
}

__device__ __forceinline__ int count_pinned(const Slots& s) {
  int pinned = 0;
  for (int base = 0; base < s.experts; base += kWarp) {
    const int e = base + int(threadIdx.x);
    pinned += __popc(__ballot_sync(kFullWarp, e < s.experts && s.pinned(e)));
  }
  return pinned;
}

// A fixed set is chosen again; other policies pin further experts.
__device__ __forceinline__ void pin_most_used(Policy& p, int num_looked_at) {
  for (int e = threadIdx.x; p.kind == kStatic && e < p.s.experts; e += kWarp)
    p.s.flags[e] &= ~kPinned;
  __syncwarp();
  const int num_slots = p.s.head->num_slots;
  int room = (p.kind == kStatic ? num_slots : num_slots / 2) - count_pinned(p.s), e = -1;
  for (int i = 0; i < num_looked_at && room > 0; i++) {
    e = next_by_uses(p.s, e);
    if (p.s.pinned(e)) continue;
    __syncwarp();
    if (threadIdx.x == 0) p.s.flags[e] |= kPinned;
    __syncwarp();
    room--;
    if (!p.s.resident(e)) p.load_if_allowed(e);
    else if (p.kind == kSlru) promote(p.s, e);
  }
}

__device__ __forceinline__ void resize(Policy& p, int num_slots, int* owners) {
  const int before = p.s.head->num_slots;
  while (p.s.head->num_resident > num_slots) {
    p.evict(leaves_for_good(p));
    if (threadIdx.x == 0) p.s.head->num_resident--;
    __syncwarp();
  }
  __syncwarp();
  if (threadIdx.x == 0) p.s.head->num_slots = num_slots;
  __syncwarp();
  close_up(p, num_slots, owners, before);
}

}  // namespace sharpi

// Gives the layer `resized` slots, unless that is negative, and pins those of its `num_pinned` most
// used experts for which there is room. loads: room for the slots that it had. scores (experts,) of
// learned-keep, otherwise null. One block of one warp.
KERNEL __launch_bounds__(32)
    slot_resize(int* state, int* loads, const float* scores, uint64_t* first,
                const uint64_t* first_addresses, uint64_t* second, const uint64_t* second_addresses,
                uint64_t* third, const uint64_t* third_addresses, int experts, int num_slots,
                int num_early, int num_staging, int kind, int has_admission, int resized,
                int num_pinned) {
  using namespace sharpi;
  __align__(16) __shared__ int words[kMaxStateWords];
  __shared__ int owners[kMaxExperts];
  copy_state(state, words, experts);
  __syncwarp();
  Policy policy = {Slots(words, experts),
                   {experts, num_slots, num_early, num_staging},
                   {first, second, third, first_addresses, second_addresses, third_addresses},
                   {loads},
                   kind,
                   has_admission,
                   scores};
  restore_host_copies(policy.s, policy.tables);
  if (resized >= 0) resize(policy, resized, owners);
  policy.fills = true;
  if (num_pinned > 0) pin_most_used(policy, num_pinned);
  if (threadIdx.x == 0) loads[0] = loads[1] = policy.num_loads;
  __syncwarp();
  copy_state(words, state, experts);
}
