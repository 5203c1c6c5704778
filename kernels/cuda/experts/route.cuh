// The router's choice for one token: the scores of all experts, the best of them, and their
// weights.
//
// One warp; lane i holds experts i, i + 32, ... Scores are compared as integers that sort like the
// floats, so that ids stay distinct whatever the logits are.
#pragma once
#include "common/block_sums.cuh"
#include "common/clock.cuh"
#include "expert_limits.cuh"

namespace sharpi {

constexpr int kEach = kMaxExperts / kWarp;
constexpr int kTaken = -0x7fffffff - 1, kHidden = kTaken + 1, kNoNumber = kTaken + 2;
// the relative distance within which a logit counts in the sparse mixer
constexpr float kNear = 0.02f;
enum Scoring { kSoftmax = 0, kSigmoid = 1, kSoftmaxOfChosen = 2, kSparseMixer = 3 };

// Returns an integer that sorts like x; + 0 makes a negative zero equal to zero.
__device__ __forceinline__ int order_of(float x) {
  const int bits = __float_as_int(x + 0.f);
  return x != x ? kNoNumber : bits < 0 ? bits ^ 0x7fffffff : bits;
}

// Computes the softmax over the values of all lanes; lanes without a value hold -infinity.
template <int N>
__device__ __forceinline__ void softmax_lanes(float (&x)[N]) {
  float peak = x[0], total = 0.f;
#pragma unroll
  for (int i = 1; i < N; i++) peak = fmaxf(peak, x[i]);
  peak = max_lanes(peak);
#pragma unroll
  for (int i = 0; i < N; i++) total += x[i] = expf(x[i] - peak);
  total = sum_lanes(total);
#pragma unroll
  for (int i = 0; i < N; i++) x[i] /= total;
}

__device__ __forceinline__ void score_lanes(float (&x)[kEach], int scoring) {
  if (scoring == kSoftmax) softmax_lanes(x);
  if (scoring != kSigmoid) return;
#pragma unroll
  for (int i = 0; i < kEach; i++) x[i] = 1.f / (1.f + expf(-x[i]));
}

// Returns the sum of a group's two best scores, or its best score alone, as an integer that sorts
// alike.
__device__ __forceinline__ int group_strength(const float* choice, int size, bool counts_two) {
  float best = -infinity(), second = -infinity();
  for (int i = 0; i < size; i++) {
    second = fmaxf(second, fminf(best, choice[i]));
    best = fmaxf(best, choice[i]);
  }
  return order_of(counts_two && size > 1 ? best + second : best);
}

// Marks the `groups_used` strongest groups in `keeps`; of equal ones, the first.
__device__ __forceinline__ void rank_groups(const float* choice, int* strength, int* keeps,
                                            int size, int num_groups, int groups_used,
                                            bool counts_two) {
  for (int g = threadIdx.x; g < num_groups; g += kWarp)
    strength[g] = group_strength(choice + g * size, size, counts_two);
  __syncwarp();
  for (int g = threadIdx.x; g < num_groups; g += kWarp) {
    int stronger = 0;
    for (int h = 0; h < num_groups; h++)
      stronger += strength[h] > strength[g] || (strength[h] == strength[g] && h < g);
    keeps[g] = stronger < groups_used;
  }
  __syncwarp();
}

// Ranks the experts of the weaker groups below all others.
__device__ __forceinline__ void hide_weak_groups(int (&keys)[kEach], const float* choice,
                                                 int experts, int num_groups, int groups_used,
                                                 bool counts_two) {
  __shared__ int strength[kMaxExperts], keeps[kMaxExperts];
  const int size = experts / num_groups;
  rank_groups(choice, strength, keeps, size, num_groups, groups_used, counts_two);
#pragma unroll
  for (int i = 0; i < kEach; i++) {
    const int e = threadIdx.x + i * kWarp;
    if (e < experts && !keeps[e / size]) keys[i] = kHidden;
  }
}

// Returns the lowest id among the experts with the highest key in the warp; its lane then removes
// it.
__device__ __forceinline__ int take_best(int (&keys)[kEach]) {
  int key = keys[0], id = threadIdx.x;
#pragma unroll
  for (int i = 1; i < kEach; i++)
    if (keys[i] > key) key = keys[i], id = threadIdx.x + i * kWarp;
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const int other_key = __shfl_xor_sync(kFullWarp, key, offset);
    const int other_id = __shfl_xor_sync(kFullWarp, id, offset);
    if (other_key > key || (other_key == key && other_id < id)) key = other_key, id = other_id;
  }
#pragma unroll
  for (int i = 0; i < kEach; i++)
    if (id == int(threadIdx.x) + i * kWarp) keys[i] = kTaken;
  return id;
}

// Returns one expert's softmax against those not yet taken whose logits come near it (SparseMixer,
// arXiv 2409.12136).
__device__ __forceinline__ float sparse_share(const float (&x)[kEach], const int (&keys)[kEach],
                                              int best, float peak) {
  float total = 0.f;
#pragma unroll
  for (int i = 0; i < kEach; i++) {
    const bool is_left = keys[i] != kTaken || best == int(threadIdx.x) + i * kWarp;
    const bool is_far = (peak - x[i]) / fmaxf(fabsf(x[i]), peak) > kNear;
    if (is_left && !is_far) total += expf(x[i] - peak);
  }
  return 1.f / sum_lanes(total);
}

// Returns the final weight of lane r's expert, the r-th best.
__device__ __forceinline__ float finish(float weight, int used, int scoring, int normalise,
                                        float scale) {
  const bool has_one = int(threadIdx.x) < used;
  if (scoring == kSparseMixer) return weight * scale;
  float weights[1] = {has_one ? weight : scoring == kSoftmaxOfChosen ? -infinity() : 0.f};
  if (scoring == kSoftmaxOfChosen) softmax_lanes(weights);
  const float total = sum_lanes(weights[0]), least = 6.103515625e-5f;
  return normalise ? weights[0] / (total < least ? least : total) * scale : weights[0] * scale;
}

// How a router chooses. bias: (experts,), which affects the choice only, or null; up to 512
// experts, of which up to 32 are used.
struct Router {
  const float* bias;
  int experts, used, scoring, normalise;
  float scale;
  int num_groups, groups_used;
};

// row: (experts,) logits; ids, weights: (used,), best first. Called by the first warp of a block.
__device__ __forceinline__ void route_row(const Router& router, const float* row, int* ids,
                                          float* weights) {
  __shared__ float scores[kMaxExperts], choice[kMaxExperts];
  const int lane = threadIdx.x, experts = router.experts, used = router.used;
  const int scoring = router.scoring;
  float x[kEach];
  int keys[kEach];
#pragma unroll
  for (int i = 0; i < kEach; i++) {
    const int e = lane + i * kWarp;
    x[i] = e < experts ? row[e] : -infinity();
  }
  score_lanes(x, scoring);
#pragma unroll
  for (int i = 0; i < kEach; i++) {
    const int e = lane + i * kWarp;
    keys[i] = kTaken;
    if (e >= experts) continue;
    scores[e] = x[i];
    choice[e] = router.bias ? x[i] + router.bias[e] : x[i];
    keys[i] = order_of(choice[e]);
  }
  __syncwarp();
  if (router.num_groups > 1)
    hide_weak_groups(keys, choice, experts, router.num_groups, router.groups_used,
                     scoring != kSoftmax);
  int id = 0;
  float weight = 0.f;
  for (int r = 0; r < used; r++) {
    const int best = take_best(keys);
    const float score = scores[best];
    const float share = scoring == kSparseMixer ? sparse_share(x, keys, best, score) : score;
    if (lane == r) id = best, weight = share;
  }
  weight = finish(weight, used, scoring, router.normalise, router.scale);
  if (lane >= used) return;
  ids[lane] = id;
  weights[lane] = weight;
}

}  // namespace sharpi

// The parameters of a router within a kernel's list, and the router made of them.
#define ROUTER                                                                             \
  const float *bias, int experts, int used, int scoring, int normalise, float route_scale, \
      int num_groups, int groups_used
#define AS_ROUTER {bias, experts, used, scoring, normalise, route_scale, num_groups, groups_used}
