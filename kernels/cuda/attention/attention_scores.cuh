// First half of attention: the scores of a span's positions, and the softmax weights made from
// them.
//
// Keys pass through shared memory while the next chunk is loaded into registers. A thread computes
// whole dot products, so nothing is summed across threads.
#pragma once
#include "attention_block.cuh"
#include "common/block_sums.cuh"

namespace sharpi {

constexpr int kLoads = kSpan * kChunkPieces / kThreads;

// The heads and rows whose scores one thread computes.
template <int HEADS>
struct ScoreShare {
  static constexpr int kHeads = HEADS < 4 ? HEADS : 4, kRows = HEADS / kHeads;
  static __device__ __forceinline__ int head(int h) {
    return threadIdx.x / (kThreads / kRows) * kHeads + h;
  }
  static __device__ __forceinline__ int row(int r) {
    return threadIdx.x % (kThreads / kRows) + r * (kThreads / kRows);
  }
};

template <class Kv>
__device__ __forceinline__ void load_keys(const SpanRows<Kv>& keys, int chunk, int pieces,
                                          uint4* loads) {
  const int row = threadIdx.x / kChunkPieces;
  const int piece = min(chunk * kChunkPieces + int(threadIdx.x) % kChunkPieces, pieces - 1);
#pragma unroll
  for (int i = 0; i < kLoads; i++)
    loads[i] = keys.load_8(row + i * (kThreads / kChunkPieces), piece * kPiece);
}

// Stores a chunk of the keys, and of the queries times `scale`, in shared memory.
template <int HEADS>
__device__ __forceinline__ void stage_chunk(SpanShared<HEADS>& shared, const uint4* loads,
                                            const float* queries, int count, int dim, int chunk,
                                            float scale) {
  const int row = threadIdx.x / kChunkPieces, piece = threadIdx.x % kChunkPieces;
#pragma unroll
  for (int i = 0; i < kLoads; i++)
    shared.scoring.keys[(row + i * (kThreads / kChunkPieces)) * kKeyStride + piece] = loads[i];
  for (int i = threadIdx.x; i < HEADS * kChunk; i += kThreads) {
    const int head = i / kChunk, at = chunk * kChunk + i % kChunk;
    const bool is_set = head < count && at < dim;
    shared.scoring.queries[head][i % kChunk] = is_set ? queries[head * dim + at] * scale : 0.f;
  }
}

// Adds a chunk's products to the thread's scores.
template <class Kv, int HEADS>
__device__ __forceinline__ void score_chunk(
    const SpanShared<HEADS>& shared, int pieces,
    float (&scores)[ScoreShare<HEADS>::kRows][ScoreShare<HEADS>::kHeads]) {
  using Share = ScoreShare<HEADS>;
  for (int piece = 0; piece < pieces; piece++) {
    float keys[Share::kRows][kPiece];
#pragma unroll
    for (int r = 0; r < Share::kRows; r++)
      Kv::unpack(shared.scoring.keys[Share::row(r) * kKeyStride + piece], keys[r]);
#pragma unroll
    for (int h = 0; h < Share::kHeads; h++) {
      const float* q = &shared.scoring.queries[Share::head(h)][piece * kPiece];
      const float4 low = *(const float4*)q, high = *(const float4*)(q + 4);
#pragma unroll
      for (int r = 0; r < Share::kRows; r++) {
        const float* k = keys[r];
        scores[r][h] += low.x * k[0] + low.y * k[1] + low.z * k[2] + low.w * k[3] + high.x * k[4] +
                        high.y * k[5] + high.z * k[6] + high.w * k[7];
      }
    }
  }
}

// Writes the scores of all rows to shared.weights. queries: (count, dim)
template <class Kv, int HEADS>
__device__ __forceinline__ void score(SpanShared<HEADS>& shared, const SpanRows<Kv>& keys,
                                      const float* queries, int count, float scale,
                                      float soft_cap) {
  using Share = ScoreShare<HEADS>;
  float scores[Share::kRows][Share::kHeads] = {};
  uint4 loads[kLoads];
  const int pieces = (keys.dim + kPiece - 1) / kPiece;
  const int chunks = (pieces + kChunkPieces - 1) / kChunkPieces;
  load_keys(keys, 0, pieces, loads);
  for (int chunk = 0; chunk < chunks; chunk++) {
    __syncthreads();
    stage_chunk(shared, loads, queries, count, keys.dim, chunk, scale);
    __syncthreads();
    if (chunk + 1 < chunks) load_keys(keys, chunk + 1, pieces, loads);
    score_chunk<Kv>(shared, min(kChunkPieces, pieces - chunk * kChunkPieces), scores);
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < Share::kRows; r++)
#pragma unroll
    for (int h = 0; h < Share::kHeads; h++) {
      const float x = scores[r][h];
      shared.weights[Share::head(h)][Share::row(r)] =
          soft_cap > 0.f ? soft_cap * tanhf(x / soft_cap) : x;
    }
  __syncthreads();
}

// Turns one head's scores into weights, by one warp: e^(score - largest), or 0 for positions that
// the query does not see. Returns {largest, sum of weights}.
__device__ __forceinline__ float2 weigh(float* weights, int first, int last) {
  const int lane = threadIdx.x % kWarp;
  float peak = -infinity(), total = 0.f;
  for (int row = lane; row < kSpan; row += kWarp)
    if (first <= row && row <= last) peak = fmaxf(peak, weights[row]);
  peak = max_lanes(peak);
  for (int row = lane; row < kSpan; row += kWarp) {
    const float weight = first <= row && row <= last ? expf(weights[row] - peak) : 0.f;
    weights[row] = weight;
    total += weight;
  }
  return make_float2(peak, sum_lanes(total));
}

}  // namespace sharpi
