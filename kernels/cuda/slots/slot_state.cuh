// One layer's slots on the device: their state, in global memory and, while a kernel decides, in
// shared memory; and the addresses at which other kernels find the experts.
//
// sharpi/ops/cuda/expert_slots/slot_state.py has the same layout.
#pragma once
#include "experts/expert_limits.cuh"
#include "slot_floats.cuh"

namespace sharpi {

constexpr int kMaxListed = 32;
constexpr int kPinned = 1, kProtected = 2;  // flags of an expert
// Experts are counted where they are needed, by the phase of the step. Each access is a hit, an
// early hit, a load into a slot, staged, streamed or computed.
enum Phase { kPrompt, kDecode, kPhases };
enum Count {
  kAccesses,
  kHits,
  kLoads,           // missed, and copied to a slot over the bus
  kLoadsFromEarly,  // early hits that were then copied to a slot
  kEarlyLoads,
  kEarlyHits,
  kEarlyWasted,
  kStaged,
  kStreamed,
  kComputed,
  kOverflows,
  kPredictions,
  kRightPredictions,
  kFills,          // copied to slots that nothing needed at once
  kWaited,         // nanoseconds
  kLate,           // early hits whose copies were still in flight
  kPredictedUses,  // experts of steps for which some were predicted
  kCounts = 24
};

struct SlotHeader {
  int64_t counts[kPhases][kCounts];
  int clock;  // uses of this layer
  int num_slots, num_resident, num_protected;
  float weight;  // of a use, in `frequency`
  int num_early, num_predictions, has_predictions;
  int phase;  // of the present step
  int reserved;
  // Nanoseconds of the GPU's clock: when the route was known (0 if not measured), when the present
  // wait began, and when the prefetch had ended.
  int64_t route_time, since, prefetch_time;
  int copied, copied_early;    // the blocks that have copied their part
  unsigned early_used, right;  // bits of `early` and `predictions` that the present step used
  int is_late;                 // the prefetch was still on its way
  int reserved_too[3];
  int early[kMaxListed];  // the expert in each early slot
  unsigned redirected[kMaxExperts /
                      kWarp];   // bits of experts whose addresses point elsewhere for a step
  int predictions[kMaxListed];  // for the next use

  __device__ __forceinline__ int64_t& count(Count what) { return counts[phase][what]; }
};

constexpr int kHeaderWords = int(sizeof(SlotHeader) / sizeof(int)), kArrays = 7;
constexpr int kMaxStateWords = kHeaderWords + kArrays * kMaxExperts;

// Residents fill the slots from 0 on, so the number of residents is the first free slot.
struct Slots {
  SlotHeader* head;
  int experts;
  int* slot_of;  // (experts,), -1: none; the arrays below have the same shape
  int* last_used;
  int* stamp;  // the order of recency; demotion renews it too
  int* uses;
  int* flags;
  float* frequency;
  int* seen;  // 1 for experts that an earlier batch of the same prompt used

  __device__ Slots(int* words, int experts)
      : head((SlotHeader*)words),
        experts(experts),
        slot_of(words + kHeaderWords),
        last_used(slot_of + experts),
        stamp(last_used + experts),
        uses(stamp + experts),
        flags(uses + experts),
        frequency((float*)(flags + experts)),
        seen(flags + 2 * experts) {}

  __device__ __forceinline__ bool resident(int e) const { return slot_of[e] >= 0; }
  __device__ __forceinline__ bool pinned(int e) const { return flags[e] & kPinned; }
  __device__ __forceinline__ bool is_protected(int e) const { return flags[e] & kProtected; }
  __device__ __forceinline__ bool has_free() const { return head->num_resident < head->num_slots; }
};

// Copies the part of a state that falls to a thread of so many.
__device__ __forceinline__ void copy_state(const int* from, int* to, int experts, int thread,
                                           unsigned threads) {
  const int words = kHeaderWords + kArrays * experts;
  for (int i = thread; i < words; i += threads) to[i] = from[i];
}

// Copies a state. Called by all threads of the block.
__device__ __forceinline__ void copy_state(const int* from, int* to, int experts) {
  copy_state(from, to, experts, int(threadIdx.x), blockDim.x);
}

// The numbers by which loads and tables name where experts are: e is the host copy of expert e;
// then come the layer's slots, its early slots, and the staging slots.
struct Locations {
  int experts, slots, early, staging;

  __device__ __forceinline__ int slot(int i) const { return experts + i; }
  __device__ __forceinline__ int early_slot(int i) const { return slot(slots) + i; }
  __device__ __forceinline__ int staging_slot(int i) const { return early_slot(early) + i; }
};

// The tables in which the experts' kernels look up addresses; `..._addresses` hold the address of
// each location.
struct Tables {
  uint64_t *first, *second, *third;  // (experts,), or null
  const uint64_t *first_addresses, *second_addresses, *third_addresses;

  // Called by one thread.
  __device__ __forceinline__ void put(int e, int location) const {
    if (first) first[e] = first_addresses[location];
    if (second) second[e] = second_addresses[location];
    if (third) third[e] = third_addresses[location];
  }
  __device__ __forceinline__ void hide(int e) const {
    if (first) first[e] = 0;
    if (second) second[e] = 0;
    if (third) third[e] = 0;
  }
};

// Points the addresses of experts that the last step read from elsewhere back to their host copies,
// unless they have taken a slot since. Called by the first warp.
__device__ __forceinline__ void restore_host_copies(const Slots& s, const Tables& tables) {
  const int lane = threadIdx.x;
  unsigned redirected = lane * kWarp < kMaxExperts ? s.head->redirected[lane] : 0;
  if (redirected) s.head->redirected[lane] = 0;
  for (; redirected; redirected &= redirected - 1) {
    const int e = lane * kWarp + __ffs(int(redirected)) - 1;
    if (!s.resident(e)) tables.put(e, e);
  }
  __syncwarp();
}

// The list of copies: a header of four words, of which [0] is the number of loads and [1] the
// number of experts that this step has moved over the bus so far, [2] the staging buffers that it
// has taken; then for each load: expert, target, source, 0.
struct Loads {
  int* words;

  __device__ __forceinline__ void set(int i, int expert, int target, int source) const {
    ((int4*)words)[1 + i] = make_int4(expert, target, source, 0);
  }
};

}  // namespace sharpi
