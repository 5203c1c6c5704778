// The state that recurrent layers carry from token to token, and a block's part of a matrix state.
//
// A block has all keys of 32 values of a head: warp w has the keys from w * kHeld on, lane i the
// value 32 * blockIdx.x + i, so that a token's sums over the keys are made in the same order
// whatever the number of tokens.
#pragma once
#include "common/types.cuh"

namespace sharpi {

constexpr int kStateWarps = 8;

// The state of one sequence, chosen by blockIdx.z: row index[sequence] of the states (any, stride).
// starts (sequences + 1,): sequence i has the tokens from starts[i] to starts[i + 1]; null: all
// `tokens` belong to the first. At position 0 the state counts as zeros, whatever is in memory.
// after (tokens,): the state in which a token leaves the sequence's, so that drafts can be taken
// back; below 0 for all tokens of a sequence without drafts, and null where none has any.
struct StateSlice {
  float* memory;
  const int* index;
  const int* positions;
  const int* starts;
  const int* after;
  int64_t stride, offset;
  int tokens;

  __device__ __forceinline__ int first() const { return starts ? starts[blockIdx.z] : 0; }
  __device__ __forceinline__ int end() const { return starts ? starts[blockIdx.z + 1] : tokens; }
  __device__ __forceinline__ float* at() const {
    return memory + index[blockIdx.z] * stride + offset;
  }
  __device__ __forceinline__ bool is_new() const { return positions[first()] == 0; }
  // Returns true if every token has a state of its own, and the sequence's state stays as it was.
  __device__ __forceinline__ bool branches() const { return after && after[first()] >= 0; }
  __device__ __forceinline__ float* after_token(int token) const {
    return memory + after[token] * stride + offset;
  }
};

__device__ __forceinline__ float softplus(float x) { return x > 20.f ? x : log1pf(expf(x)); }

// A thread's part of a head's state (keys, stride): kHeld keys of one value; zeros pad it to the
// end.
template <int kHeld>
struct StateTile {
  float values[kHeld];

  static __device__ __forceinline__ int first_key() { return int(threadIdx.x) / kWarp * kHeld; }
  static __device__ __forceinline__ int column() {
    return int(blockIdx.x) * kWarp + int(threadIdx.x) % kWarp;
  }

  __device__ __forceinline__ void load(const float* state, int keys, int stride, bool is_there) {
#pragma unroll
    for (int i = 0; i < kHeld; i++) {
      const bool has = is_there && first_key() + i < keys;
      values[i] = has ? state[size_t(first_key() + i) * stride + column()] : 0.f;
    }
  }
  __device__ __forceinline__ void store(float* state, int keys, int stride, bool is_there) const {
#pragma unroll
    for (int i = 0; i < kHeld; i++)
      if (is_there && first_key() + i < keys)
        state[size_t(first_key() + i) * stride + column()] = values[i];
  }
  // Returns the sum over the thread's keys of key[i] * state.
  __device__ __forceinline__ float read(const float* key) const {
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < kHeld; i++) sum = __fmaf_rn(key[first_key() + i], values[i], sum);
    return sum;
  }
  // Sets the state to decay * state + key[i] * value.
  __device__ __forceinline__ void write(const float* key, float decay, float value) {
#pragma unroll
    for (int i = 0; i < kHeld; i++)
      values[i] = __fmaf_rn(key[first_key() + i], value, __fmul_rn(decay, values[i]));
  }
  // The same with a decay for each key.
  __device__ __forceinline__ void write(const float* key, const float* decay, float value) {
#pragma unroll
    for (int i = 0; i < kHeld; i++) {
      const int k = first_key() + i;
      values[i] = __fmaf_rn(key[k], value, __fmul_rn(decay[k], values[i]));
    }
  }
};

// Partial sums of every warp, by value; `whole` returns the total once all warps have written and
// passed a barrier.
struct WarpSums {
  float parts[kStateWarps][kWarp];

  __device__ __forceinline__ void put(float x) {
    parts[threadIdx.x / kWarp][threadIdx.x % kWarp] = x;
  }
  __device__ __forceinline__ float whole() const {
    float sum = 0.f;
#pragma unroll
    for (int w = 0; w < kStateWarps; w++) sum += parts[w][threadIdx.x % kWarp];
    return sum;
  }
};

}  // namespace sharpi
