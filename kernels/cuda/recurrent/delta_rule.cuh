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

// The decays of a token's keys, and the key with which the state is read before it decays.
struct KeyDecays {
  float decay[kMaxKeys], recall[kMaxKeys];

  // Each thread reads what it wrote itself of `key`.
  __device__ __forceinline__ void load(const float* key, const float* alpha, const float* dt_bias,
                                       float a, float floor, int keys, int held) {
    for (int i = threadIdx.x; i < held; i += blockDim.x) {
      const float x = i < keys ? alpha[i] + dt_bias[i] : 0.f;
      decay[i] = expf(floor < 0.f ? floor / (1.f + expf(a * x)) : a * softplus(x));
      recall[i] = decay[i] * key[i];
    }
  }
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

template <int kHeld>
__device__ __forceinline__ void delta_net(const float* qkv, const float* beta, const float* alpha,
                                          float a, float dt_bias, float* out,
                                          const StateSlice& slice, const DeltaNetSizes& s) {
  __shared__ UnitRows rows;
  __shared__ WarpSums recalled, given;
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
    rows.load(query, query + s.key_heads * keys, keys, kStateWarps * kHeld, s.epsilon, scale);
    __syncthreads();
    const float decay = expf(a * softplus(alpha[gate] + dt_bias));
    recalled.put(tile.read(rows.key));
    __syncthreads();
    const float* values = row + 2 * s.key_heads * keys + head * s.value_dim;
    const float value = is_there ? values[column] : 0.f;
    const float wrong = __fmaf_rn(-decay, recalled.whole(), value);
    tile.write(rows.key, decay, wrong / (1.f + expf(-beta[gate])));
    given.put(tile.read(rows.query));
    __syncthreads();
    if (threadIdx.x < kWarp && is_there) out[gate * s.value_dim + column] = given.whole();
    if (branches) tile.store(slice.after_token(t) + of_head, keys, s.stride, is_there);
  }
  if (!branches) tile.store(slice.at() + of_head, keys, s.stride, is_there);
}

// The same with a decay for each key: alpha (T, value_heads, key_dim), dt_bias (value_heads,
// key_dim).
template <int kHeld>
__device__ __forceinline__ void kimi_delta(const float* qkv, const float* beta, const float* alpha,
                                           float a, const float* dt_bias, float floor, float* out,
                                           const StateSlice& slice, const DeltaNetSizes& s) {
  __shared__ UnitRows rows;
  __shared__ KeyDecays decays;
  __shared__ WarpSums recalled, given;
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
    constexpr int kKeys = kStateWarps * kHeld;
    rows.load(query, query + s.key_heads * keys, keys, kKeys, s.epsilon, scale);
    decays.load(rows.key, alpha + gate * keys, dt_bias + head * keys, a, floor, keys, kKeys);
    __syncthreads();
    recalled.put(tile.read(decays.recall));
    __syncthreads();
    const float* values = row + 2 * s.key_heads * keys + head * s.value_dim;
    const float wrong = (is_there ? values[column] : 0.f) - recalled.whole();
    tile.write(rows.key, decays.decay, wrong / (1.f + expf(-beta[gate])));
    given.put(tile.read(rows.query));
    __syncthreads();
    if (threadIdx.x < kWarp && is_there) out[gate * s.value_dim + column] = given.whole();
    if (branches) tile.store(slice.after_token(t) + of_head, keys, s.stride, is_there);
  }
  if (!branches) tile.store(slice.at() + of_head, keys, s.stride, is_there);
}

}  // namespace sharpi
