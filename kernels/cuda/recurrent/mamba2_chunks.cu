// The state space steps of mamba2.cu for many tokens of one sequence, in chunks.
#include "chunk_pass.cuh"
#include "chunk_rows.cuh"

namespace sharpi {

struct Mamba2Chunks {
  const float* xbc;
  int tokens, heads, groups, head_dim, keys;

  __device__ __forceinline__ ChunkSource of(int head) const {
    const int inner = heads * head_dim, written = head * groups / heads * keys;
    return {xbc,
            tokens,
            inner + 2 * groups * keys,
            inner + written,
            inner + groups * keys + written,
            head * head_dim,
            keys,
            head_dim};
  }
};

}  // namespace sharpi

// The arguments are those of mamba2; prepared: (heads, T rounded up to 32) ChunkRow. Grid (chunks,
// heads).
KERNEL __launch_bounds__(256, 2)
    mamba2_rows(const float* xbc, const float* dts, const float* a, const float* dt_bias,
                float* prepared, int tokens, int heads, int groups, int head_dim, int keys) {
  using namespace sharpi;
  DYN_SHARED(float, memory);
  const Mamba2Chunks all{xbc, tokens, heads, groups, head_dim, keys};
  const int head = blockIdx.y, first = blockIdx.x * kChunk, token = first + threadIdx.x % kWarp;
  TokenGates gates{0.f, 0.f, 0.f};
  if (token < tokens) {
    gates.value = softplus(dts[size_t(token) * heads + head] + dt_bias[head]);
    gates.log_decay = a[head] * gates.value;
  }
  prepare_chunk<false>(all.of(head), first, gates, {}, chunk_rows(prepared, head, tokens) + first,
                       memory);
}

// Grid (head_dim / 32, heads).
KERNEL __launch_bounds__(256, 1)
    mamba2_chunks(const float* xbc, const float* skip, float* prepared, float* out, float* states,
                  const int* index, const int* positions, const int* starts, const int* after,
                  int64_t state_stride, int64_t offset, int tokens, int heads, int groups,
                  int head_dim, int keys, int stride) {
  using namespace sharpi;
  DYN_SHARED(float, memory);
  const StateSlice slice{states, index, positions, starts, after, state_stride, offset, tokens};
  const Mamba2Chunks all{xbc, tokens, heads, groups, head_dim, keys};
  const int head = blockIdx.y, column = blockIdx.x * kWarp + threadIdx.x % kWarp;
  pass_chunks<false>(
      all.of(head), chunk_rows(prepared, head, tokens), slice.at() + size_t(head) * keys * stride,
      stride, slice.is_new(), memory, [&](int token, float result, float x) {
        out[(size_t(token) * heads + head) * head_dim + column] = __fmaf_rn(skip[head], x, result);
      });
}
