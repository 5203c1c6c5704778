// The gated delta rule of each head: the state decays, then the value that a key recalls is moved
// towards the token's value. A block takes 32 values of a head and goes through a sequence's tokens
// in order.
#pragma once
#include "state.cuh"

namespace sharpi {

constexpr int kMaxKeys = 1024;

// A token's query and key, normalised to unit length, the query then times `scale`; zeros pad them
// to the end.
struct UnitRows {
  float query[kMaxKeys], key[kMaxKeys];

  // All threads of the block call it; every warp sums the squares for itself.
  __device__ __forceinline__ void load(const float* q, const float* k, int keys, int held,
                                       float epsilon, float scale) {
    float of_query = 0.f, of_key = 0.f;
    for (int i = threadIdx.x % kWarp; i < keys; i += kWarp) {
      of_query = __fmaf_rn(q[i], q[i], of_query);
      of_key = __fmaf_rn(k[i], k[i], of_key);
    }
    const float query_factor = scale / sqrtf(sum_lanes(of_query) + epsilon);
    const float key_factor = 1.f / sqrtf(sum_lanes(of_key) + epsilon);
    for (int i = threadIdx.x; i < held; i += blockDim.x) {
      query[i] = i < keys ? q[i] * query_factor : 0.f;
      key[i] = i < keys ? k[i] * key_factor : 0.f;
    }
  }
};

// One decay for each head: alpha (T, value_heads).
struct HeadDecay {
  const float* alpha;
  float a, dt_bias, decay;

  __device__ __forceinline__ void load(const UnitRows&, size_t gate, int, int) {
    decay = expf(a * softplus(alpha[gate] + dt_bias));
  }
  // The state is read before it decays.
  __device__ __forceinline__ const float* recall(const UnitRows& rows) const { return rows.key; }
  __device__ __forceinline__ float wrong(float value, float recalled) const {
    return __fmaf_rn(-decay, recalled, value);
  }
  __device__ __forceinline__ float of_keys() const { return decay; }
};

// The decays of a token's keys, and the key with which the state is read before it decays.
struct DecayedKeys {
  float decay[kMaxKeys], recall[kMaxKeys];
};

// A decay for each key: alpha (T, value_heads, key_dim), dt_bias (key_dim,) of the head.
struct KeyDecay {
  DecayedKeys& keys_of;
  const float *alpha, *dt_bias;
  float a, floor;

  // Each thread reads what it wrote itself of the key.
  __device__ __forceinline__ void load(const UnitRows& rows, size_t gate, int keys, int held) {
    for (int i = threadIdx.x; i < held; i += blockDim.x) {
      const float x = i < keys ? alpha[gate * keys + i] + dt_bias[i] : 0.f;
      keys_of.decay[i] = expf(floor < 0.f ? floor / (1.f + expf(a * x)) : a * softplus(x));
      keys_of.recall[i] = keys_of.decay[i] * rows.key[i];
    }
  }
  __device__ __forceinline__ const float* recall(const UnitRows&) const { return keys_of.recall; }
  __device__ __forceinline__ float wrong(float value, float recalled) const {
    return value - recalled;
  }
  __device__ __forceinline__ const float* of_keys() const { return keys_of.decay; }
};

struct DeltaNetSizes {
  int first, end, key_heads, value_heads, key_dim, value_dim, stride, tiled;
  float epsilon;

  __device__ __forceinline__ int key_head(int head) const {
    return tiled ? head % key_heads : head * key_heads / value_heads;
  }
  __device__ __forceinline__ int width() const {
    return 2 * key_heads * key_dim + value_heads * value_dim;
  }
};

template <int kHeld, class Decay>
__device__ __forceinline__ void delta_rule(const float* qkv, const float* beta, Decay decay,
                                           float* out, const StateSlice& slice,
                                           const DeltaNetSizes& s) {
  __shared__ UnitRows rows;
  __shared__ WarpSums recalled, given;
  constexpr int kKeys = kStateWarps * kHeld;
  const int head = blockIdx.y, keys = s.key_dim, column = StateTile<kHeld>::column();
  const size_t of_head = size_t(head) * keys * s.stride;
  const bool is_there = column < s.value_dim, branches = slice.branches();
  const float scale = 1.f / sqrtf(float(keys));
  StateTile<kHeld> tile;
  tile.load(slice.at() + of_head, keys, s.stride, is_there && !slice.is_new());
  for (int t = s.first; t < s.end; t++) {
    const float* row = qkv + size_t(t) * s.width();
    const float* query = row + s.key_head(head) * keys;
    const size_t gate = size_t(t) * s.value_heads + head;
    rows.load(query, query + s.key_heads * keys, keys, kKeys, s.epsilon, scale);
    decay.load(rows, gate, keys, kKeys);
    __syncthreads();
    recalled.put(tile.read(decay.recall(rows)));
    __syncthreads();
    const float* values = row + 2 * s.key_heads * keys + head * s.value_dim;
    const float wrong = decay.wrong(is_there ? values[column] : 0.f, recalled.whole());
    tile.write(rows.key, decay.of_keys(), wrong / (1.f + expf(-beta[gate])));
    given.put(tile.read(rows.query));
    __syncthreads();
    if (threadIdx.x < kWarp && is_there) out[gate * s.value_dim + column] = given.whole();
    if (branches) tile.store(slice.after_token(t) + of_head, keys, s.stride, is_there);
  }
  if (!branches) tile.store(slice.at() + of_head, keys, s.stride, is_there);
}

}  // namespace sharpi
