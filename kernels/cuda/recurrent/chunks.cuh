// Recurrent layers in chunks of 32 tokens: matrix products instead of steps from token to token.
//
// The state S (keys, values) of a head becomes d_t S + k_t u_t at token t, and the token's result
// is q_t S. Let D_t be the product of a chunk's decays up to t, and S the state before the chunk:
//   result_t = D_t q_t S + sum over i <= t of (D_t / D_i) (q_t k_i) u_i
//   the next S = D_31 S + sum over i of (D_31 / D_i) k_i u_i
// In Mamba-2, u is an input. In the delta rule, (1 + L) u = beta (v - D k S), where L[t][i] is
// beta_t (D_t / D_i) (k_t k_i) for i < t and 0 elsewhere (arXiv 2412.06464, section 3.3).
//
// One kernel prepares what does not depend on the state, for all chunks in parallel: ChunkRow.
// Another goes through the chunks in order.
#pragma once
#include "state.cuh"

namespace sharpi {

constexpr int kChunk = 32;  // tokens; as many as a warp has lanes
constexpr int kTokensOfWarp = kChunk / kStateWarps;
constexpr int kKeysOfTurn = 4 * kStateWarps;  // four for each warp

// Prepared data of one token of a head. Tokens beyond the last have zeros, and decays of 1.
struct ChunkRow {
  float reads[kChunk];      // the weights of u in the token's result
  float solves[kChunk];     // of the delta rule: the token's row of (1 + L)^-1 beta
  float decay, after;       // D_t and D_31 / D_t
  float key, query, value;  // factors of the token's vectors
  float pad[3];
};

// Returns the rows of a head in `prepared` (heads, tokens rounded up to chunks).
__device__ __forceinline__ ChunkRow* chunk_rows(float* prepared, int head, int tokens) {
  return (ChunkRow*)prepared + size_t(head) * ((tokens + kChunk - 1) / kChunk * kChunk);
}

// Where a head's vectors lie in the rows of tokens, (tokens, width).
struct ChunkSource {
  const float* rows;
  int tokens, width, key, query, value, keys, values;

  // The keys for which memory has room: whole turns.
  __device__ __forceinline__ int held() const {
    return (keys + kKeysOfTurn - 1) / kKeysOfTurn * kKeysOfTurn;
  }
  // Copies the vectors that begin at `offset` in the chunk's rows to (32, stride), times
  // `factor(row)`; zeros pad them.
  template <class Factor>
  __device__ __forceinline__ void load(int first, int offset, float* to, int stride,
                                       Factor factor) const {
    const int count = held();
    for (int i = threadIdx.x; i < kChunk * count; i += blockDim.x) {
      const int row = i / count, k = i % count;
      const bool is_there = first + row < tokens && k < keys;
      to[row * stride + k] =
          is_there ? rows[size_t(first + row) * width + offset + k] * factor(row) : 0.f;
    }
  }
  __device__ __forceinline__ float value_at(int token, int column) const {
    if (token >= tokens || column >= values) return 0.f;
    return rows[size_t(token) * width + value + column];
  }
};

__device__ __forceinline__ float4 four(const float* address) { return *(const float4*)address; }

__device__ __forceinline__ float add_product(float4 a, float4 b, float sum) {
  sum = __fmaf_rn(a.x, b.x, sum);
  sum = __fmaf_rn(a.y, b.y, sum);
  sum = __fmaf_rn(a.z, b.z, sum);
  return __fmaf_rn(a.w, b.w, sum);
}

}  // namespace sharpi
