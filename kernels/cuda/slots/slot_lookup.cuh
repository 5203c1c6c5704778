// A token's lookups in a layer's slots, and their statistics. For one warp; every lane gets the
// same arguments.
#pragma once
#include "slot_learned.cuh"
#include "slot_rules.cuh"

namespace sharpi {

enum Outcome { kHit = 0, kLoaded = 1, kWasEarly = 2, kStagedIn = 3, kStreamedIn = 4, kLeft = 5 };

// Counts how long the token had to wait for its prefetch. Returns true if it had to.
__device__ __forceinline__ bool count_prefetch_wait(SlotHeader& head) {
  const int64_t waited = head.prefetch_time - head.route_time;
  const bool is_late = head.num_early && head.route_time && waited > 0;
  if (is_late) head.count(kWaited) += waited;
  head.route_time = 0;
  return is_late;
}

// A token's position among those of its step, which look up their experts one after the other.
struct TokenOfStep {
  int num_before, num_tokens;

  __device__ __forceinline__ bool is_first() const { return num_before == 0; }
  __device__ __forceinline__ bool is_last() const { return num_before + 1 == num_tokens; }
};

// Counts which of the experts that were prefetched or predicted for this step are used by this
// token first. Returns a bit for each of the token's experts that was prefetched.
__device__ __forceinline__ unsigned count_predictions(const Slots& s, const int* ids, int used,
                                                      bool is_first) {
  const int lane = threadIdx.x;
  SlotHeader& head = *s.head;
  const bool is_early = lane < head.num_early, is_prediction = lane < head.num_predictions;
  const bool was_used = is_early && is_among(ids, used, head.early[lane]);
  const bool was_right = is_prediction && is_among(ids, used, head.predictions[lane]);
  const unsigned all_used = __ballot_sync(kFullWarp, was_used);
  const unsigned all_right = __ballot_sync(kFullWarp, was_right);
  const bool came_early = lane < used && is_among(head.early, head.num_early, ids[lane]);
  const unsigned early = __ballot_sync(kFullWarp, came_early);
  if (lane != 0) return early;
  const int hits = __popc(all_used & ~head.early_used);
  if (is_first) head.is_late = count_prefetch_wait(head);
  if (is_first) head.count(kPredictions) += head.num_predictions;
  head.count(kEarlyHits) += hits;
  if (head.is_late) head.count(kLate) += hits;
  head.count(kRightPredictions) += __popc(all_right & ~head.right);
  head.early_used |= all_used, head.right |= all_right;
  return early;
}

// Forgets a step's prefetches at its end. Called by one thread.
__device__ __forceinline__ void end_predictions(SlotHeader& head) {
  head.count(kEarlyWasted) += head.num_early - __popc(head.early_used);
  head.num_early = head.num_predictions = head.has_predictions = 0;
  head.early_used = head.right = 0;
}

// Looks up the token's experts. Returns a bit for each that has no slot.
__device__ __forceinline__ unsigned look_up(const Slots& s, int id, int used) {
  const bool is_one = int(threadIdx.x) < used;
  const unsigned missed = __ballot_sync(kFullWarp, is_one && !s.resident(is_one ? id : 0));
  const int clock = s.head->clock + 1;
  __syncwarp();
  if (is_one) s.last_used[id] = s.stamp[id] = clock, s.uses[id]++;
  if (threadIdx.x == 0) s.head->clock = clock;
  __syncwarp();
  return missed;
}

// Counts the uses of slru and lfru, and promotes experts that slru found resident.
__device__ __forceinline__ void touch_decayed(const Slots& s, int kind, int id, int used,
                                              unsigned missed) {
  grow_weight(s, kind);
  if (int(threadIdx.x) < used) s.frequency[id] = add_as_cpu(s.frequency[id], s.head->weight);
  __syncwarp();
  for (int r = 0; r < used && kind == kSlru; r++)
    if (!(missed >> r & 1)) promote(s, __shfl_sync(kFullWarp, id, r));
}

// Counts the lookups by their outcomes. An expert that an earlier token of the step looked up
// counts only where it was copied once more. `early`: those that were prefetched.
__device__ __forceinline__ void count_outcomes(const Slots& s, int outcome, bool is_repeat,
                                               unsigned early, int used) {
  const int lane = threadIdx.x;
  const bool is_copied = (outcome == kLoaded && !(early >> lane & 1)) || outcome == kStagedIn;
  const bool counts = lane < used && (!is_repeat || is_copied);
  const auto number = [&](int which, bool may_be_early) {
    const bool is_early = early >> lane & 1;
    return __popc(
        __ballot_sync(kFullWarp, counts && outcome == which && (may_be_early || !is_early)));
  };
  const int accesses = __popc(__ballot_sync(kFullWarp, counts));
  const int fresh = __popc(__ballot_sync(kFullWarp, lane < used && !is_repeat));
  const int hits = number(kHit, true), loads = number(kLoaded, false);
  const int staged = number(kStagedIn, true), streamed = number(kStreamedIn, true);
  const int computed = number(kLeft, true);
  if (lane != 0) return;
  SlotHeader& head = *s.head;
  head.count(kAccesses) += accesses, head.count(kHits) += hits, head.count(kLoads) += loads;
  head.count(kStaged) += staged, head.count(kStreamed) += streamed;
  head.count(kComputed) += computed;
  if (head.has_predictions) head.count(kPredictedUses) += fresh;
}

}  // namespace sharpi
