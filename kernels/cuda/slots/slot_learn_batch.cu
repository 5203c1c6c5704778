// learned-keep after a batch: every layer's map learns from the last tokens one by one, as if each
// had been decoded. A layer reads only the routes of the others, so that all layers run in
// parallel.
#include "slot_learned.cuh"

namespace sharpi {

struct Batch {
  const int* remembered;   // (layers, kBatchMemory, used)
  const int* has_experts;  // (layers,): 1 where the layer was part of the batch
  const int* routes;       // (layers, kRanks): the newest routes before the batch
  int used;

  __device__ __forceinline__ const int* route(int layer, int token) const {
    return remembered + (size_t(layer) * kBatchMemory + token) * used;
  }
  // Returns what layer `of` used last at the time when `layer` of `token` is computed.
  __device__ __forceinline__ int newest(int of, int layer, int token, int rank) const {
    const int from = of <= layer ? token : token - 1;
    if (!has_experts[of] || from < 0) return routes[of * kRanks + rank];
    return rank < used ? route(of, from)[rank] : -1;
  }
};

}  // namespace sharpi

// learned: the maps of all layers, `stride` floats apart. Grid (layers).
KERNEL __launch_bounds__(256, 1)
    slot_learn_batch(float* learned, const int* remembered, const int* has_experts,
                     const int* routes, int64_t stride, int experts, int tokens, int used,
                     int ranks, float rate) {
  using namespace sharpi;
  __shared__ int inputs[2][kInputs], is_scored;
  const int layer = blockIdx.x, num_layers = gridDim.x, t = threadIdx.x;
  const int s = t / kRanks, rank = t % kRanks;
  if (!has_experts[layer]) return;
  const Batch batch = {remembered, has_experts, routes, used};
  const LearnedMap map(learned + layer * stride, experts);
  if (t < kInputs) inputs[1][t] = map.inputs[t];
  if (t == 0) is_scored = map.is_scored();
  for (int token = 0; token < tokens; token++) {
    int* now = inputs[token % 2];
    const int of = layer_of_source(s, layer, num_layers);
    const bool is_known = t < kInputs && of >= 0 && of < num_layers && rank < ranks;
    if (t < kInputs)
      now[t] = row_of(s, is_known ? batch.newest(of, layer, token, rank) : -1, experts);
    __syncthreads();
    for (int e = t; e < experts; e += blockDim.x)
      step_map(map, e, now, inputs[1 - token % 2], is_scored || token > 0,
               is_among(batch.route(layer, token), used, e), rate);
    __syncthreads();
  }
  if (t < kInputs) map.inputs[t] = inputs[(tokens - 1) % 2][t];
  if (t == 0) map.is_scored() = 1;
}

// Makes the routes of the batch's last token the newest known ones. Grid (layers), one warp.
KERNEL __launch_bounds__(32) slot_end_batch(const int* remembered, const int* has_experts,
                                            int* routes, int tokens, int used, int ranks) {
  using namespace sharpi;
  const int layer = blockIdx.x, rank = threadIdx.x;
  if (!has_experts[layer] || rank >= kRanks) return;
  const int* last = remembered + (size_t(layer) * kBatchMemory + tokens - 1) * used;
  routes[layer * kRanks + rank] = rank < min(used, ranks) ? last[rank] : -1;
}
