// Prepares a chunk of a head: the weights between its tokens, and their decays.
#pragma once
#include "chunks.cuh"

namespace sharpi {

constexpr int kKeyPadding = 4;  // floats, so that lanes read their rows from different banks

// A token's gates; those of tokens beyond the last are zeros.
struct TokenGates {
  float log_decay, beta, value;
};

// How queries and keys become unit vectors; Mamba-2 takes them as they are.
struct UnitLength {
  float epsilon, query_scale;
};

struct ChunkVectors {
  float *keys, *queries;  // (32, stride)
  int stride;

  __device__ __forceinline__ ChunkVectors(float* memory, int held)
      : keys(memory), queries(memory + kChunk * (held + kKeyPadding)), stride(held + kKeyPadding) {}

  __device__ __forceinline__ static float length(const float* row, int held) {
    float sum = 0.f;
    for (int k = threadIdx.x % kWarp; k < held; k += kWarp) sum = __fmaf_rn(row[k], row[k], sum);
    return sum_lanes(sum);
  }
};

// Factors of the chunk's keys and queries, by token.
struct UnitFactors {
  float key[kChunk], query[kChunk];

  // A warp fills in its own tokens.
  __device__ __forceinline__ void fill(const ChunkVectors& in, int held, const UnitLength& unit) {
    for (int i = 0; i < kTokensOfWarp; i++) {
      const int t = int(threadIdx.x) / kWarp * kTokensOfWarp + i;
      const float of_key = ChunkVectors::length(in.keys + t * in.stride, held);
      const float of_query = ChunkVectors::length(in.queries + t * in.stride, held);
      if (threadIdx.x % kWarp > 0) continue;
      key[t] = 1.f / sqrtf(of_key + unit.epsilon);
      query[t] = unit.query_scale / sqrtf(of_query + unit.epsilon);
    }
  }
  __device__ __forceinline__ void fill_ones() {
    if (threadIdx.x < kChunk) key[threadIdx.x] = query[threadIdx.x] = 1.f;
  }
};

// L of a chunk.
struct LowerWeights {
  float weights[kChunk][kChunk + kKeyPadding];

  // A lane computes its column of (1 + L)^-1, times beta of its token; all lanes of a warp call it.
  __device__ __forceinline__ void invert(float beta, ChunkRow* rows) const {
    const int lane = threadIdx.x % kWarp;
    float column[kChunk];
#pragma unroll
    for (int t = 0; t < kChunk; t++) {
      float sum = t == lane ? 1.f : 0.f;
#pragma unroll
      for (int i = 0; i < t; i++) sum = __fmaf_rn(-weights[t][i], column[i], sum);
      column[t] = sum;
      rows[t].solves[lane] = sum * beta;
    }
  }
};

// Returns the sum of a lane's value and those of all lanes below.
__device__ __forceinline__ float sum_so_far(float x) {
#pragma unroll
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const float below = __shfl_up_sync(kFullWarp, x, offset);
    if (int(threadIdx.x % kWarp) >= offset) x += below;
  }
  return x;
}

// Prepares the chunk from token `first` on. `gates` are those of the lane's token. kSolves: of the
// delta rule.
template <bool kSolves>
__device__ __forceinline__ void prepare_chunk(const ChunkSource& in, int first, TokenGates gates,
                                              const UnitLength& unit, ChunkRow* rows,
                                              float* memory) {
  __shared__ UnitFactors factors;
  __shared__ LowerWeights lower;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, held = in.held();
  const ChunkVectors vectors(memory, held);
  const auto plain = [](int) { return 1.f; };
  in.load(first, in.key, vectors.keys, vectors.stride, plain);
  in.load(first, in.query, vectors.queries, vectors.stride, plain);
  __syncthreads();
  if (kSolves) factors.fill(vectors, held, unit);
  else factors.fill_ones();
  __syncthreads();
  float of_keys[kTokensOfWarp] = {}, of_queries[kTokensOfWarp] = {};
  for (int k = 0; k < held; k += 4) {
    const float4 key = four(vectors.keys + lane * vectors.stride + k);
#pragma unroll
    for (int i = 0; i < kTokensOfWarp; i++) {
      const int at = (warp * kTokensOfWarp + i) * vectors.stride + k;
      if (kSolves) of_keys[i] = add_product(four(vectors.keys + at), key, of_keys[i]);
      of_queries[i] = add_product(four(vectors.queries + at), key, of_queries[i]);
    }
  }
  const float decays = sum_so_far(gates.log_decay);  // the logarithm of D
#pragma unroll
  for (int i = 0; i < kTokensOfWarp; i++) {
    const int t = warp * kTokensOfWarp + i;
    const float since = expf(fminf(__shfl_sync(kFullWarp, decays, t) - decays, 0.f));
    const float beta = __shfl_sync(kFullWarp, gates.beta, t), weight = since * factors.key[lane];
    rows[t].reads[lane] = lane <= t ? of_queries[i] * factors.query[t] * weight : 0.f;
    if (kSolves)
      lower.weights[t][lane] = lane < t ? beta * of_keys[i] * factors.key[t] * weight : 0.f;
  }
  __syncthreads();
  if (warp > 0) return;
  if (kSolves) lower.invert(gates.beta, rows);
  ChunkRow* own = rows + lane;
  own->decay = expf(decays);
  own->after = expf(__shfl_sync(kFullWarp, decays, kChunk - 1) - decays);
  own->key = factors.key[lane];
  own->query = factors.query[lane];
  own->value = gates.value;
}

}  // namespace sharpi
