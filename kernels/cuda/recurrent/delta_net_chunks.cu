// The gated delta rule of delta_net.cu for many tokens of one sequence, in chunks.
#include "chunk_pass.cuh"
#include "chunk_rows.cuh"

namespace sharpi {

struct DeltaNetChunks {
  const float* qkv;
  int tokens, key_heads, value_heads, key_dim, value_dim, tiled;

  __device__ __forceinline__ ChunkSource of(int head) const {
    const int key_head = tiled ? head % key_heads : head * key_heads / value_heads;
    const int all_keys = key_heads * key_dim, query = key_head * key_dim;
    return {qkv,
            tokens,
            2 * all_keys + value_heads * value_dim,
            all_keys + query,
            query,
            2 * all_keys + head * value_dim,
            key_dim,
            value_dim};
  }
};

}  // namespace sharpi

// The arguments are those of delta_net; prepared: (value_heads, T rounded up to 32) ChunkRow. Grid
// (chunks, value_heads).
KERNEL __launch_bounds__(256, 2)
    delta_net_rows(const float* qkv, const float* beta, const float* alpha, const float* a,
                   const float* dt_bias, float* prepared, int tokens, int key_heads,
                   int value_heads, int key_dim, int value_dim, int tiled, float epsilon) {
  using namespace sharpi;
  DYN_SHARED(float, memory);
  const DeltaNetChunks all{qkv, tokens, key_heads, value_heads, key_dim, value_dim, tiled};
  const int head = blockIdx.y, first = blockIdx.x * kChunk, token = first + threadIdx.x % kWarp;
  TokenGates gates{0.f, 0.f, 1.f};
  if (token < tokens) {
    const size_t at = size_t(token) * value_heads + head;
    gates.log_decay = a[head] * softplus(alpha[at] + dt_bias[head]);
    gates.beta = 1.f / (1.f + expf(-beta[at]));
  }
  prepare_chunk<true>(all.of(head), first, gates, {epsilon, 1.f / sqrtf(float(key_dim))},
                      chunk_rows(prepared, head, tokens) + first, memory);
}

// Grid (value_dim / 32, value_heads).
KERNEL __launch_bounds__(256, 1)
    delta_net_chunks(const float* qkv, float* prepared, float* out, float* states, const int* index,
                     const int* positions, const int* starts, const int* after,
                     int64_t state_stride, int64_t offset, int tokens, int key_heads,
                     int value_heads, int key_dim, int value_dim, int stride, int tiled) {
  using namespace sharpi;
  DYN_SHARED(float, memory);
  const StateSlice slice{states, index, positions, starts, after, state_stride, offset, tokens};
  const DeltaNetChunks all{qkv, tokens, key_heads, value_heads, key_dim, value_dim, tiled};
  const int head = blockIdx.y, column = blockIdx.x * kWarp + threadIdx.x % kWarp;
  pass_chunks<true>(all.of(head), chunk_rows(prepared, head, tokens),
                    slice.at() + size_t(head) * key_dim * stride, stride, slice.is_new(), memory,
                    [&](int token, float result, float) {
                      out[(size_t(token) * value_heads + head) * value_dim + column] = result;
                    });
}
