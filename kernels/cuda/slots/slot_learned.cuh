// The map of learned-keep, as tests/experts/reference/reference_learned_map.py defines it: from the
// experts just used in this layer, the layers beside it and the last layers, to a score for each.
//
// A thread owns whole columns of the map, one per expert, so that no barrier is needed here.
#pragma once
#include "slot_floats.cuh"
#include "slot_rules.h"

namespace sharpi {

constexpr int kSources = kNearLayers + kLastLayers;
constexpr int kInputs = kSources * kRanks, kInputWords = 32;

// One layer's map in memory: bias and scores (experts,), the inputs from which the scores were
// computed, a flag that is set once there are scores, and weights (kSources * experts, experts).
struct LearnedMap {
  int experts;
  float *bias, *scores;
  int* inputs;
  float* weights;

  __device__ LearnedMap(float* words, int experts)
      : experts(experts),
        bias(words),
        scores(words + experts),
        inputs((int*)(words + 2 * experts)),
        weights(words + 2 * experts + kInputWords) {}

  __device__ __forceinline__ int& is_scored() const { return inputs[kInputs]; }
};

// Returns the layer that source `s` of a layer stands for; it may lie outside the model.
__device__ __forceinline__ int layer_of_source(int s, int layer, int num_layers) {
  if (s >= kNearLayers) return num_layers - kLastLayers + s - kNearLayers;
  return s == 0 ? layer : s == 1 ? layer - 1 : layer + 1;
}

// Returns a row of the map, or -1 where no expert is known.
__device__ __forceinline__ int row_of(int s, int expert, int experts) {
  return expert < 0 ? -1 : s * experts + expert;
}

// Returns the weight of the n-th best expert of a route.
__device__ __forceinline__ float rank_weight(int input) {
  const int rank = input % kRanks;
  return rank == 0 ? 1.f : rank == 1 ? 1.f / 2 : rank == 2 ? 1.f / 3 : 1.f / 4;
}

__device__ __forceinline__ float clipped(float x) {
  return __float_as_int(x) <= 0 ? 0.f : __float_as_int(x) >= __float_as_int(1.f) ? 1.f : x;
}

// The number of weights of an expert's column that are read together, because the latency of memory
// is long.
constexpr int kAtOnce = kInputs / 2;

// Reads the weights of `inputs` from `first` on; 0 where no expert is known.
__device__ __forceinline__ void read_column(const float* column, int experts, const int* inputs,
                                            int first, float (&weights)[kAtOnce]) {
#pragma unroll
  for (int i = 0; i < kAtOnce; i++) {
    const int row = inputs[first + i];
    weights[i] = row < 0 ? 0.f : column[size_t(row) * experts];
  }
}

__device__ __forceinline__ float score_column(const float* column, int experts, const int* inputs,
                                              float bias) {
  float score = bias, weights[kAtOnce];
#pragma unroll 1
  for (int first = 0; first < kInputs; first += kAtOnce) {
    read_column(column, experts, inputs, first, weights);
#pragma unroll
    for (int i = 0; i < kAtOnce; i++)
      if (inputs[first + i] >= 0)
        score = add_as_cpu(score, mul_as_cpu(rank_weight(first + i), weights[i]));
  }
  return score;
}

__device__ __forceinline__ void teach_column(float* column, int experts, const int* inputs,
                                             float rate, float error) {
  float weights[kAtOnce];
#pragma unroll 1
  for (int first = 0; first < kInputs; first += kAtOnce) {
    read_column(column, experts, inputs, first, weights);
#pragma unroll
    for (int i = 0; i < kAtOnce; i++) {
      const int row = inputs[first + i];
      const float step = mul_as_cpu(mul_as_cpu(rate, rank_weight(first + i)), error);
      if (row >= 0) column[size_t(row) * experts] = add_as_cpu(weights[i], step);
    }
  }
}

// Returns the expert's new score from `inputs`. If the previous score came from `inputs_before`,
// the map learns from it. Both lists are (kInputs,) in shared memory.
__device__ __forceinline__ float step_map(const LearnedMap& map, int expert, const int* inputs,
                                          const int* inputs_before, bool is_scored, bool is_used,
                                          float rate) {
  float* column = map.weights + expert;
  const float bias = map.bias[expert], before = map.scores[expert];
  const float score = score_column(column, map.experts, inputs, bias);
  map.scores[expert] = score;
  if (!is_scored) return score;
  const float error = sub_as_cpu(is_used ? 1.f : mul_as_cpu(kDiscount, clipped(score)), before);
  map.bias[expert] = add_as_cpu(bias, mul_as_cpu(kBiasRate, error));
  teach_column(column, map.experts, inputs_before, rate, error);
  return score;
}

__device__ __forceinline__ bool is_among(const int* ids, int count, int expert) {
  bool found = false;
  for (int i = 0; i < count; i++) found |= ids[i] == expert;
  return found;
}

// Scores all experts after this route and learns from the previous scores, which go into `before`.
// Called by all threads of the block.
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

}  // namespace sharpi
