// What recurrent layers carry from token to token, and the part of a matrix state that a block has.
//
// A block has all keys of 32 values of a head: warp w the keys from w * kHeld on, lane i the value
// 32 * blockIdx.x + i, so that a token's sums over the keys are made in one order whatever the
// number of tokens.
#pragma once
#include "common/types.cuh"

namespace sharpi {

constexpr int kStateWarps = 8;

// States (any, stride) of which `index` (sequences,) names each sequence's, a block's that of its
// blockIdx.z. `starts` (sequences + 1,): its tokens are from one of these to the next; null: all
// `tokens` are the first's. At position 0 the state is zeros, whatever is there.
struct StateSlice {
  float* memory;
  const int* index;
  const int* positions;
  const int* starts;
  int64_t stride, offset;
  int tokens;

  __device__ __forceinline__ int first() const { return starts ? starts[blockIdx.z] : 0; }
  __device__ __forceinline__ int end() const { return starts ? starts[blockIdx.z + 1] : tokens; }
  __device__ __forceinline__ float* at() const {
    return memory + index[blockIdx.z] * stride + offset;
  }
  __device__ __forceinline__ bool is_new() const { return positions[first()] == 0; }
};

__device__ __forceinline__ float softplus(float x) { return x > 20.f ? x : log1pf(expf(x)); }

// A thread's part of a head's state (keys, stride): kHeld keys of one value, zeros beyond the last.
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
  // The sum over the thread's keys of key[i] * state
  __device__ __forceinline__ float read(const float* key) const {
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < kHeld; i++) sum = __fmaf_rn(key[first_key() + i], values[i], sum);
    return sum;
  }
  // decay * state + key[i] * value
  __device__ __forceinline__ void write(const float* key, float decay, float value) {
#pragma unroll
    for (int i = 0; i < kHeld; i++)
      values[i] = __fmaf_rn(key[first_key() + i], value, __fmul_rn(decay, values[i]));
  }
};

// What every warp has summed, by value: the whole sum once all have written and met at a barrier.
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
