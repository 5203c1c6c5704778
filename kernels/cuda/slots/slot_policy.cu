// Decides about a token's experts in a layer: which have a slot, which get one, and where the
// others are read from. One block; its first warp decides.
#include "common/clock.cuh"
#include "slot_learned.cuh"
#include "slot_rules.cuh"

namespace sharpi {

enum Miss { kLoad = 0, kStream = 1, kCompute = 2 };
enum Outcome { kHit = 0, kLoaded = 1, kWasEarly = 2, kStagedIn = 3, kStreamedIn = 4, kLeft = 5 };

// learned-keep: scores all experts after this route and learns from the previous scores, which go
// into `before`. Called by all threads of the block.
__device__ __forceinline__ void score_experts(const LearnedMap& map, const int* ids, int used,
                                              int* routes, int layer, int num_layers, int ranks,
                                              float rate, float* before, float* fresh) {
  __shared__ int inputs[kInputs], inputs_before[kInputs];
  __shared__ int is_scored;
  const int t = threadIdx.x, s = t / kRanks, rank = t % kRanks;
  if (t < kInputs) {
    const int from = layer_of_source(s, layer, num_layers);
    const bool is_known = from >= 0 && from < num_layers && rank < ranks;
    const int expert = !is_known       ? -1
                       : from != layer ? routes[from * kRanks + rank]
                       : rank < used   ? ids[rank]
                                       : -1;
    inputs[t] = row_of(s, expert, map.experts);
    inputs_before[t] = map.inputs[t];
  }
  if (t == 0) is_scored = map.is_scored();
  __syncthreads();
  for (int e = t; e < map.experts; e += blockDim.x) {
    before[e] = map.scores[e];
    fresh[e] = step_map(map, e, inputs, inputs_before, is_scored, is_among(ids, used, e), rate);
  }
  if (t < kInputs) map.inputs[t] = inputs[t];
  if (t < kRanks) routes[layer * kRanks + t] = t < min(used, ranks) ? ids[t] : -1;
  if (t == 0) map.is_scored() = 1;
  __syncthreads();
}

// Counts how long the token had to wait for its prefetch. Returns true if it had to.
__device__ __forceinline__ bool count_prefetch_wait(SlotHeader& head) {
  const int64_t waited = head.came - head.arrived;
  const bool is_late = head.num_early && head.arrived && waited > 0;
  if (is_late) head.count(kWaited) += waited;
  head.arrived = 0;
  return is_late;
}

// A token's place among those of its step, which look up their experts one after the other.
struct Place {
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

// Counts the uses of slru and lfru, and promotes experts that slru found resident.
__device__ __forceinline__ void touch_decayed(const Slots& s, int kind, int id, int used,
                                              unsigned missed) {
  grow_weight(s, kind);
  if (int(threadIdx.x) < used) s.frequency[id] = add_as_cpu(s.frequency[id], s.head->weight);
  __syncwarp();
  for (int r = 0; r < used && kind == kSlru; r++)
    if (!(missed >> r & 1)) promote(s, __shfl_sync(kFullWarp, id, r));
}

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
// expert's outcome. An earlier token of the step may have read one of them from elsewhere.
__device__ __forceinline__ int serve_others(Policy& p, int id, int used, bool was_hit, int miss,
                                            int* overflow) {
  const int lane = threadIdx.x;
  SlotHeader& head = *p.s.head;
  const bool is_one = lane < used, is_left = is_one && !p.s.resident(id);
  int early = -1;
  for (int i = 0; i < head.num_early; i++)
    if (is_left && head.early[i] == id) early = i;
  const unsigned left = __ballot_sync(kFullWarp, is_left && early < 0);
  const int nth = __popc(left & ((1u << lane) - 1)), num_left = __popc(left);
  const bool misses = is_left && early < 0, is_staged = misses && nth < p.places.staging;
  const int staged = miss == kLoad ? min(num_left, p.places.staging) : 0;
  int outcome = was_hit ? kHit : kLoaded;
  if (early >= 0) p.tables.put(id, p.places.early_slot(early)), outcome = kWasEarly;
  if (misses) outcome = kStreamedIn, p.tables.put(id, id);
  if (is_staged && miss == kLoad) {
    p.loads.set(p.num_loads + nth, id, p.places.staging_slot(nth), id);
    p.tables.put(id, p.places.staging_slot(nth));
    outcome = kStagedIn;
  }
  if (misses && miss == kCompute) p.tables.hide(id), outcome = kLeft;
  const bool is_away = is_left && outcome != kStreamedIn;
  if (is_away) atomicOr(&head.away[id / kWarp], 1u << id % kWarp);
  const int computed = miss == kCompute ? num_left : 0;
  p.num_loads += staged, p.num_over_bus += num_left - computed;
  if (lane == 0) {
    head.count(kOverflows) += miss == kLoad && num_left > staged;
    if (miss == kLoad && num_left > staged) *overflow = 1;
  }
  return outcome;
}

// `before`: the experts of the step's tokens before this one, (place.num_before, used).
__device__ __forceinline__ void decide(Policy& p, const int* ids, const int* before, Place place,
                                       int* outcomes, int* overflow, int used, int miss, int phase,
                                       const float* fresh) {
  const int lane = threadIdx.x, id = lane < used ? ids[lane] : 0;
  if (lane == 0) p.s.head->phase = phase;
  if (place.is_first()) send_home(p.s, p.tables);
  const unsigned early = count_predictions(p.s, ids, used, place.is_first());
  const unsigned missed = look_up(p.s, id, used);
  p.busy = p.s.head->clock;
  if (decays(p.kind)) touch_decayed(p.s, p.kind, id, used, missed);
  for (int r = 0; r < used; r++)
    if (missed >> r & 1) p.place(__shfl_sync(kFullWarp, id, r));
  p.scores = fresh;
  if (p.kind == kLearnedKeep) swap_better(p, ids, used);
  const int outcome = serve_others(p, id, used, !(missed >> lane & 1), miss, overflow);
  if (lane < used) outcomes[lane] = outcome;
  count_outcomes(p.s, outcome, is_among(before, place.num_before * used, id), early, used);
  __syncwarp();
  if (lane == 0) {
    if (place.is_last()) end_predictions(*p.s.head);
    p.loads.words[0] = p.num_loads;
    p.loads.words[1] = p.num_over_bus + (place.is_first() ? 0 : p.loads.words[1]);
    p.s.head->since = nanoseconds();
  }
}

}  // namespace sharpi

// state: of the layer; ids (num_before + 1, used), each token's distinct, best first, up to 32;
// loads: room for `used`; outcomes (used,); overflow: set to 1 where there were too few staging
// buffers. Of the step's `num_tokens` tokens the first `num_before` were decided before. phase: of
// the step. learned, routes: of learned-keep, otherwise null; routes (num_layers, 4). One block of
// whole warps.
KERNEL __launch_bounds__(256, 1)
    slot_policy(int* state, const int* ids, int* loads, int* outcomes, int* overflow,
                uint64_t* first, const uint64_t* where_first, uint64_t* second,
                const uint64_t* where_second, uint64_t* third, const uint64_t* where_third,
                float* learned, int* routes, int experts, int used, int num_slots, int num_early,
                int num_staging, int kind, int has_admission, int miss, int phase, int num_before,
                int num_tokens, int layer, int num_layers, int ranks, float rate) {
  using namespace sharpi;
  __align__(16) __shared__ int words[kMaxStateWords];
  __shared__ float before[kMaxExperts], fresh[kMaxExperts];
  __shared__ int route[kMaxListed];
  copy_state(state, words, experts);
  if (int(threadIdx.x) < used) route[threadIdx.x] = ids[num_before * used + threadIdx.x];
  __syncthreads();
  if (learned)
    score_experts(LearnedMap(learned, experts), route, used, routes, layer, num_layers, ranks, rate,
                  before, fresh);
  if (threadIdx.x < kWarp) {
    Policy policy = {Slots(words, experts),
                     {experts, num_slots, num_early, num_staging},
                     {first, second, third, where_first, where_second, where_third},
                     {loads},
                     kind,
                     has_admission,
                     before};
    decide(policy, route, ids, {num_before, num_tokens}, outcomes, overflow, used, miss, phase,
           fresh);
  }
  __syncthreads();
  copy_state(words, state, experts);
}
