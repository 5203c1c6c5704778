// Predicts a layer's experts from those that the layer before it uses for the same token, by how
// often each followed each expert of that layer; the reference is the predictor `last-layer` of
// tests/experts/reference/reference_predictor.py. One block.
#include "slot_floats.cuh"
#include "slot_rules.h"
#include "slot_state.cuh"

namespace sharpi {

// Counts that the experts `ids` followed those of `before`, -1 where unknown. counts (experts,
// experts), seen (experts,): the latest text counts most.
__device__ __forceinline__ void observe(float* counts, float* seen, const int* before,
                                        const int* ids, int experts, int used) {
  for (int i = threadIdx.x; i < used * used; i += blockDim.x)
    if (before[i / used] >= 0) counts[before[i / used] * experts + ids[i % used]] += 1;
  __syncthreads();
  for (int i = threadIdx.x; i < used; i += blockDim.x)
    if (before[i] >= 0) seen[before[i]] += 1;
  __syncthreads();
  for (int i = 0; i < used; i++) {
    if (before[i] < 0 || seen[before[i]] < kMostSeen) continue;
    for (int e = threadIdx.x; e < experts; e += blockDim.x) counts[before[i] * experts + e] *= 0.5f;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < used; i += blockDim.x)
    if (before[i] >= 0 && seen[before[i]] >= kMostSeen) seen[before[i]] *= 0.5f;
  __syncthreads();
}

}  // namespace sharpi

// counts: those of this layer after the one before it, (1 + experts, experts) with how often each
// was seen in the first row; next_counts: those of the next layer after this one. ids (used,): this
// layer's experts, distinct, best first; before (used,): those of the layer before, or -1; kept
// (used,): gets `ids`. predicted (used,): the next layer's, best first, and -1 behind them; null,
// as `next_counts`, after the last layer.
KERNEL __launch_bounds__(256)
    slot_last_layer(float* counts, const float* next_counts, const int* ids, const int* before,
                    int* kept, int* predicted, int experts, int used) {
  using namespace sharpi;
  __shared__ float scores[kMaxExperts];
  __shared__ int route[kMaxListed], below[kMaxListed];
  if (int(threadIdx.x) < used)
    route[threadIdx.x] = ids[threadIdx.x], below[threadIdx.x] = before[threadIdx.x];
  __syncthreads();
  observe(counts + experts, counts, below, route, experts, used);
  if (int(threadIdx.x) < used) kept[threadIdx.x] = route[threadIdx.x];
  if (!predicted) return;
  for (int e = threadIdx.x; e < experts; e += blockDim.x) {
    float score = 0;
    for (int rank = 0; rank < used; rank++) {
      const float seen = next_counts[route[rank]];
      if (seen == 0) continue;
      const float scale = __fdiv_rn(__fdiv_rn(1.f, float(rank + 1)), seen);
      score = add_as_cpu(score, mul_as_cpu(scale, next_counts[(1 + route[rank]) * experts + e]));
    }
    scores[e] = score;
  }
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  for (int i = 0; i < used; i++) {
    int best = -1;
    for (int e = threadIdx.x; e < experts; e += kWarp)
      if (scores[e] > 0 && (best < 0 || scores[e] > scores[best])) best = e;
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
      const int other = __shfl_xor_sync(kFullWarp, best, offset);
      const bool is_better = other >= 0 && (best < 0 || scores[other] > scores[best] ||
                                            (scores[other] == scores[best] && other < best));
      if (is_better) best = other;
    }
    __syncwarp();
    if (threadIdx.x == 0) {
      predicted[i] = best;
      if (best >= 0) scores[best] = 0;
    }
    __syncwarp();
  }
}
