// Goes through the prepared chunks of a head. A block has all keys of 32 values of the state.
#pragma once
#include "chunks.cuh"

namespace sharpi {

struct ChunkMemory {
  float* state;           // (held, 32 values)
  float *keys, *queries;  // (32 tokens, held)
  float* values;          // (32 tokens, 32 values): u
  ChunkRow* rows;

  __device__ __forceinline__ ChunkMemory(float* memory, int held)
      : state(memory),
        keys(state + held * kWarp),
        queries(keys + kChunk * held),
        values(queries + kChunk * held),
        rows((ChunkRow*)(values + kChunk * kWarp)) {}
};

// A thread's part of a chunk: four tokens of one value.
struct ChunkPart {
  int lane, token, held;  // the first token of the warp's four

  __device__ __forceinline__ static ChunkPart here(int held) {
    return {int(threadIdx.x) % kWarp, int(threadIdx.x) / kWarp * kTokensOfWarp, held};
  }
  // Adds k S of each token to `recalled`, for the delta rule, and q S to `given`.
  template <bool kSolves>
  __device__ __forceinline__ void read(const ChunkMemory& m, float (&recalled)[kTokensOfWarp],
                                       float (&given)[kTokensOfWarp]) const {
    for (int k = 0; k < held; k += 4) {
      const float* column = m.state + k * kWarp + lane;
      const float4 state = {column[0], column[kWarp], column[2 * kWarp], column[3 * kWarp]};
#pragma unroll
      for (int i = 0; i < kTokensOfWarp; i++) {
        const int at = (token + i) * held + k;
        if (kSolves) recalled[i] = add_product(four(m.keys + at), state, recalled[i]);
        given[i] = add_product(four(m.queries + at), state, given[i]);
      }
    }
  }
  // Adds the sum of weights[t][i] * u_i for each token to `sums`.
  __device__ __forceinline__ void weigh(const ChunkMemory& m,
                                        const float (ChunkRow::*weights)[kChunk],
                                        float (&sums)[kTokensOfWarp]) const {
#pragma unroll
    for (int t = 0; t < kChunk; t += 4) {
      const float* column = m.values + t * kWarp + lane;
      const float4 u = {column[0], column[kWarp], column[2 * kWarp], column[3 * kWarp]};
#pragma unroll
      for (int i = 0; i < kTokensOfWarp; i++)
        sums[i] = add_product(four(m.rows[token + i].*weights + t), u, sums[i]);
    }
  }
  __device__ __forceinline__ void put(const ChunkMemory& m, const float (&u)[kTokensOfWarp]) const {
#pragma unroll
    for (int i = 0; i < kTokensOfWarp; i++) m.values[(token + i) * kWarp + lane] = u[i];
  }
  // Lets the state decay and adds k u of all tokens, for the warp's keys.
  __device__ __forceinline__ void write(const ChunkMemory& m) const {
    const float decay = m.rows[kChunk - 1].decay;
    for (int k = token; k < held; k += kKeysOfTurn) {
      float* column = m.state + k * kWarp + lane;
      float state[4];
#pragma unroll
      for (int j = 0; j < 4; j++) state[j] = decay * column[j * kWarp];
#pragma unroll 4
      for (int t = 0; t < kChunk; t++) {
        const float u = m.rows[t].after * m.values[t * kWarp + lane];
        const float4 key = four(m.keys + t * held + k);
        state[0] = __fmaf_rn(key.x, u, state[0]);
        state[1] = __fmaf_rn(key.y, u, state[1]);
        state[2] = __fmaf_rn(key.z, u, state[2]);
        state[3] = __fmaf_rn(key.w, u, state[3]);
      }
#pragma unroll
      for (int j = 0; j < 4; j++) column[j * kWarp] = state[j];
    }
  }
};
static_assert(kTokensOfWarp == 4, "a warp has four tokens, and four keys a turn");

// Computes a chunk whose vectors are in memory; calls store(token, result, value) for each token.
template <bool kSolves, class Store>
__device__ __forceinline__ void compute_chunk(const ChunkSource& in, const ChunkMemory& m,
                                              int first, int column, Store store) {
  const ChunkPart part = ChunkPart::here(in.held());
  float values[kTokensOfWarp], u[kTokensOfWarp] = {}, results[kTokensOfWarp] = {};
  part.read<kSolves>(m, u, results);
#pragma unroll
  for (int i = 0; i < kTokensOfWarp; i++) {
    const ChunkRow& row = m.rows[part.token + i];
    values[i] = in.value_at(first + part.token + i, column);
    u[i] = kSolves ? __fmaf_rn(-row.decay, u[i], values[i]) : row.value * values[i];
    results[i] *= row.decay;
  }
  part.put(m, u);
  __syncthreads();
  if (kSolves) {
    float solved[kTokensOfWarp] = {};
    part.weigh(m, &ChunkRow::solves, solved);
    __syncthreads();
    part.put(m, solved);
    __syncthreads();
  }
  part.weigh(m, &ChunkRow::reads, results);
  part.write(m);
#pragma unroll
  for (int i = 0; i < kTokensOfWarp; i++) {
    const int token = first + part.token + i;
    if (token < in.tokens && column < in.values) store(token, results[i], values[i]);
  }
}

// Goes through all chunks; `prepared` (tokens, rounded up to chunks), state (keys, stride).
template <bool kSolves, class Store>
__device__ __forceinline__ void pass_chunks(const ChunkSource& in, const ChunkRow* prepared,
                                            float* state, int stride, bool is_new, float* memory,
                                            Store store) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, held = in.held();
  const int column = blockIdx.x * kWarp + lane;
  const ChunkMemory m(memory, held);
  for (int k = warp; k < held; k += kStateWarps) {
    const bool has = !is_new && k < in.keys && column < in.values;
    m.state[k * kWarp + lane] = has ? state[size_t(k) * stride + column] : 0.f;
  }
  for (int first = 0; first < in.tokens; first += kChunk) {
    const ChunkRow* rows = prepared + first;
    __syncthreads();
    in.load(first, in.key, m.keys, held, [&](int row) { return rows[row].key; });
    in.load(first, in.query, m.queries, held, [&](int row) { return rows[row].query; });
    for (int i = threadIdx.x; i < int(kChunk * sizeof(ChunkRow) / sizeof(float4)); i += blockDim.x)
      ((float4*)m.rows)[i] = ((const float4*)rows)[i];
    __syncthreads();
    compute_chunk<kSolves>(in, m, first, column, store);
  }
  __syncthreads();
  for (int k = warp; k < in.keys; k += kStateWarps)
    if (column < in.values) state[size_t(k) * stride + column] = m.state[k * kWarp + lane];
}

}  // namespace sharpi
