// The decision about a token's experts in a layer: which have a slot, which get one, and where the
// others are read from. For one block, whose first warp decides.
#pragma once
#include "common/clock.cuh"
#include "slot_lookup.cuh"

namespace sharpi {

// How experts without a slot are served: over the bus, or by the CPU.
enum Miss { kBus, kCompute };

// learned-keep: missed experts take the slots of residents that score less.
__device__ __forceinline__ void swap_better(Policy& p, const int* ids, int used) {
  for (int i = 0; i < used; i++) {
    const int enters = first_of(
        p.s, [&](int e) { return !p.s.resident(e) && is_among(ids, used, e); },
        [&](int e) { return -p.key(e); });
    const int leaves = p.victim();
    if (enters < 0 || leaves < 0 || p.key(enters) <= p.key(leaves)) return;
    p.insert(enters, leaves);
  }
}

// Decides where the experts that got no slot are read in this use, one per lane. Returns each
// expert's outcome. What an earlier token of the step was served stays where it is. `first_staged`:
// the staging buffers that earlier tokens took; `num_staged`: those that this one takes. Without
// one, an expert is read in place.
__device__ __forceinline__ int serve_others(Policy& p, int id, int used, bool was_hit, int miss,
                                            int* overflow, int first_staged, int& num_staged) {
  const int lane = threadIdx.x;
  SlotHeader& head = *p.s.head;
  const bool is_one = lane < used, is_left = is_one && !p.s.resident(id);
  int early = -1;
  for (int i = 0; i < head.num_early; i++)
    if (is_left && head.early[i] == id) early = i;
  const bool was_served = is_left && early < 0 && head.redirected[id / kWarp] >> id % kWarp & 1;
  __syncwarp();
  const bool misses = is_left && early < 0 && !was_served;
  const unsigned left = __ballot_sync(kFullWarp, misses);
  const int nth = __popc(left & ((1u << lane) - 1)), num_left = __popc(left);
  const int free_staged = max(0, p.locations.staging - first_staged);
  num_staged = miss == kBus ? min(num_left, free_staged) : 0;
  int outcome = was_hit ? kHit : kLoaded;
  if (was_served) outcome = miss == kCompute ? kLeft : kHit;
  if (early >= 0) p.tables.put(id, p.locations.early_slot(early)), outcome = kWasEarly;
  if (misses) outcome = kStreamedIn, p.tables.put(id, id);
  if (misses && nth < num_staged) {
    const int target = p.locations.staging_slot(first_staged + nth);
    p.loads.set(p.num_loads + nth, id, target, id);
    p.tables.put(id, target);
    outcome = kStagedIn;
  }
  if (misses && miss == kCompute) p.tables.hide(id), outcome = kLeft;
  const bool is_redirected = is_left && outcome != kStreamedIn;
  if (is_redirected) atomicOr(&head.redirected[id / kWarp], 1u << id % kWarp);
  const int computed = miss == kCompute ? num_left : 0;
  p.num_loads += num_staged, p.num_over_bus += num_left - computed;
  if (lane == 0 && num_left > computed + num_staged) head.count(kOverflows)++, *overflow = 1;
  return outcome;
}

// `before`: the experts of the step's tokens before this one, (token.num_before, used).
__device__ __forceinline__ void decide(Policy& p, const int* ids, const int* before,
                                       TokenOfStep token, int* outcomes, int* overflow, int used,
                                       int miss, int phase, const float* fresh) {
  const int lane = threadIdx.x, id = lane < used ? ids[lane] : 0;
  if (lane == 0) p.s.head->phase = phase;
  if (token.is_first()) restore_host_copies(p.s, p.tables);
  const unsigned early = count_predictions(p.s, ids, used, token.is_first());
  const unsigned missed = look_up(p.s, id, used);
  p.busy = p.s.head->clock;
  if (decays(p.kind)) touch_decayed(p.s, p.kind, id, used, missed);
  for (int r = 0; r < used; r++)
    if (missed >> r & 1) p.load_if_allowed(__shfl_sync(kFullWarp, id, r));
  p.scores = fresh;
  if (p.kind == kLearnedKeep) swap_better(p, ids, used);
  const int first_staged = token.is_first() ? 0 : p.loads.words[2];
  int num_staged;
  const int outcome =
      serve_others(p, id, used, !(missed >> lane & 1), miss, overflow, first_staged, num_staged);
  if (lane < used) outcomes[lane] = outcome;
  count_outcomes(p.s, outcome, is_among(before, token.num_before * used, id), early, used);
  __syncwarp();
  if (lane == 0) {
    if (token.is_last()) end_predictions(*p.s.head);
    p.loads.words[0] = p.num_loads;
    p.loads.words[1] = p.num_over_bus + (token.is_first() ? 0 : p.loads.words[1]);
    p.loads.words[2] = first_staged + num_staged;
    p.s.head->since = nanoseconds();
  }
}

// A layer's slots, and how to decide about them. state: of the layer; loads: room for a token's
// experts; outcomes (used,); overflow: set to 1 where there were too few staging buffers; phase: of
// the step; learned, routes: of learned-keep, otherwise null; routes (num_layers, 4).
struct SlotDecision {
  int* state;
  Loads loads;
  int *outcomes, *overflow;
  Tables tables;
  float* learned;
  int* routes;
  int num_slots, num_early, num_staging, kind, has_admission, miss, phase;
  int layer, num_layers, ranks;
  float rate;
};

// What a block has in shared memory while it decides.
struct DecisionMemory {
  __align__(16) int words[kMaxStateWords];        // the layer's state
  float before[kMaxExperts], fresh[kMaxExperts];  // learned-keep's scores
  int route[kMaxListed];
};

// Decides about a token of which `ids` (token.num_before + 1, used) has the experts in its last
// row: distinct, best first, up to 32. Called by all threads of a block of whole warps that has
// copied the state to `memory`.
__device__ __forceinline__ void decide_token(const SlotDecision& what, DecisionMemory& memory,
                                             const int* ids, int experts, int used,
                                             TokenOfStep token) {
  const int t = threadIdx.x;
  if (t < used) memory.route[t] = ids[token.num_before * used + t];
  __syncthreads();
  if (what.learned)
    score_experts(LearnedMap(what.learned, experts), memory.route, used, what.routes, what.layer,
                  what.num_layers, what.ranks, what.rate, memory.before, memory.fresh);
  if (t < kWarp) {
    Policy policy = {Slots(memory.words, experts),
                     {experts, what.num_slots, what.num_early, what.num_staging},
                     what.tables,
                     what.loads,
                     what.kind,
                     what.has_admission,
                     memory.before};
    decide(policy, memory.route, ids, token, what.outcomes, what.overflow, used, what.miss,
           what.phase, memory.fresh);
  }
  __syncthreads();
  copy_state(memory.words, what.state, experts);
}

}  // namespace sharpi

// The parameters of a decision within a kernel's list, and the decision made of them.
#define SLOT_DECISION                                                                       \
  int *state, int *loads, int *outcomes, int *overflow, uint64_t *first,                    \
      const uint64_t *first_addresses, uint64_t *second, const uint64_t *second_addresses,  \
      uint64_t *third, const uint64_t *third_addresses, float *learned, int *routes,        \
      int num_slots, int num_early, int num_staging, int kind, int has_admission, int miss, \
      int phase, int layer, int num_layers, int ranks, float rate
#define AS_SLOT_DECISION                                                       \
  {state,                                                                      \
   {loads},                                                                    \
   outcomes,                                                                   \
   overflow,                                                                   \
   {first, second, third, first_addresses, second_addresses, third_addresses}, \
   learned,                                                                    \
   routes,                                                                     \
   num_slots,                                                                  \
   num_early,                                                                  \
   num_staging,                                                                \
   kind,                                                                       \
   has_admission,                                                              \
   miss,                                                                       \
   phase,                                                                      \
   layer,                                                                      \
   num_layers,                                                                 \
   ranks,                                                                      \
   rate}
