// Updates a layer's slots after a batch: each distinct expert counts as one access, the experts
// worth most at the batch's end take the free slots, and nothing is evicted. One block.
#include "slot_rules.cuh"

namespace sharpi {

// Counts how often each expert is used, into (experts,) in shared memory.
__device__ __forceinline__ void count_uses(const int* ids, int num_items, int* times, int experts) {
  for (int e = threadIdx.x; e < experts; e += blockDim.x) times[e] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < num_items; i += blockDim.x) atomicAdd(&times[ids[i]], 1);
  __syncthreads();
}

// `is_first`: the first batch of its prompt. Misses are added to `miss_count`.
__device__ __forceinline__ void look_up_batch(const Slots& s, const int* times, bool is_first,
                                              Count miss_count) {
  const int clock = s.head->clock + 1;
  int accesses = 0, hits = 0;
  for (int base = 0; base < s.experts; base += blockDim.x) {
    const int e = base + int(threadIdx.x);
    const bool is_used = e < s.experts && times[e] > 0;
    const bool counts = is_used && (is_first || !s.seen[e]);
    accesses += __syncthreads_count(counts);
    hits += __syncthreads_count(counts && s.resident(e));
    if (e < s.experts) s.seen[e] = is_used || (!is_first && s.seen[e]);
    if (is_used) s.last_used[e] = s.stamp[e] = clock, s.uses[e] += times[e];
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    SlotHeader& head = *s.head;
    head.clock = clock, head.phase = kPrompt;
    head.count(kAccesses) += accesses, head.count(kHits) += hits;
    head.count(miss_count) += accesses - hits;
    head.count(kEarlyWasted) += head.num_early;
    head.num_early = head.num_predictions = 0;
  }
  __syncthreads();
}

// Counts the uses of the last tokens one by one, where they decay. Called by the first warp.
__device__ __forceinline__ void touch_frequency(const Slots& s, int kind, const int* ids,
                                                int tokens, int used) {
  const int lane = threadIdx.x;
  for (int t = max(0, tokens - kBatchMemory); t < tokens; t++) {
    grow_weight(s, kind);
    const int e = lane < used ? ids[size_t(t) * used + lane] : 0;
    if (lane < used) s.frequency[e] = add_as_cpu(s.frequency[e], s.head->weight);
    __syncwarp();
  }
}

// Returns the worth of an expert, or kNone if it may not take a slot.
__device__ __forceinline__ int worth(const Policy& p, int e, int times) {
  const bool may = times > 0 && !p.s.resident(e) && (p.kind != kStatic || p.s.pinned(e));
  if (!may) return kNone;
  if (p.kind == kStatic) return 0;
  return key_of(decays(p.kind) ? p.s.frequency[e] : __int2float_rn(p.s.uses[e]));
}

// Lists the experts that take the free slots, best first, in `chosen`. Called by all threads.
__device__ __forceinline__ void choose(const Policy& p, const int* times, int* keys, int* chosen) {
  const int experts = p.s.experts, free_slots = p.s.head->num_slots - p.s.head->num_resident;
  for (int e = threadIdx.x; e < experts; e += blockDim.x)
    keys[e] = worth(p, e, times[e]), chosen[e] = -1;
  __syncthreads();
  for (int e = threadIdx.x; e < experts; e += blockDim.x) {
    if (keys[e] == kNone) continue;
    int position = 0;
    for (int other = 0; other < experts; other++) {
      const bool is_better = keys[other] > keys[e] || (keys[other] == keys[e] && other < e);
      position += keys[other] != kNone && is_better;
    }
    if (position < free_slots) chosen[position] = e;
  }
  __syncthreads();
}

}  // namespace sharpi

// state: of the layer; ids (tokens, used), distinct in a row; loads: room for all slots; the routes
// of the batch's last tokens, up to 64, go into `remembered` (64, used), unless it is null.
// is_first: 0 where other batches of the same prompt came before. miss_count: the Count of misses.
// One block.
KERNEL __launch_bounds__(256)
    slot_batch(int* state, const int* ids, int* loads, int* remembered, uint64_t* first,
               const uint64_t* first_addresses, uint64_t* second, const uint64_t* second_addresses,
               uint64_t* third, const uint64_t* third_addresses, int experts, int tokens, int used,
               int num_slots, int num_early, int num_staging, int kind, int is_first,
               int miss_count) {
  using namespace sharpi;
  __align__(16) __shared__ int words[kMaxStateWords];
  __shared__ int times[kMaxExperts], keys[kMaxExperts], chosen[kMaxExperts];
  copy_state(state, words, experts);
  __syncthreads();
  Policy policy = {Slots(words, experts),
                   {experts, num_slots, num_early, num_staging},
                   {first, second, third, first_addresses, second_addresses, third_addresses},
                   {loads},
                   kind};
  if (threadIdx.x < kWarp) restore_host_copies(policy.s, policy.tables);
  count_uses(ids, tokens * used, times, experts);
  look_up_batch(policy.s, times, is_first, Count(miss_count));
  policy.fills = true;
  const int skipped = max(0, tokens - kBatchMemory) * used;
  for (int i = threadIdx.x; remembered && i < tokens * used - skipped; i += blockDim.x)
    remembered[i] = ids[skipped + i];
  if (decays(kind) && threadIdx.x < kWarp) touch_frequency(policy.s, kind, ids, tokens, used);
  __syncthreads();
  choose(policy, times, keys, chosen);
  if (threadIdx.x < kWarp) {
    for (int i = 0; i < experts && chosen[i] >= 0; i++) policy.insert(chosen[i], -1);
    if (threadIdx.x == 0) loads[0] = loads[1] = policy.num_loads;
  }
  __syncthreads();
  copy_state(words, state, experts);
}
