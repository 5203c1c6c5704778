// The gated delta rule of each head: the state decays, then the value that a key recalls is moved
// towards the token's value. A block takes 32 values of a head and goes through a sequence's tokens
// in order.
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

}  // namespace sharpi

// qkv: (T, width); beta, alpha: (T, value_heads); a, dt_bias: (value_heads,); out: (T, value_heads
// * value_dim); state: (value_heads, key_dim, stride). Grid (value_dim / 32, value_heads,
// sequences).
#define DELTA_NET(NAME, HELD, BLOCKS)                                                              \
  KERNEL __launch_bounds__(256, BLOCKS)                                                            \
      NAME(const float* qkv, const float* beta, const float* alpha, const float* a,                \
           const float* dt_bias, float* out, float* states, const int* index,                      \
           const int* positions, const int* starts, const int* after, int64_t state_stride,        \
           int64_t offset, int tokens, int key_heads, int value_heads, int key_dim, int value_dim, \
           int stride, int tiled, float epsilon) {                                                 \
    using namespace sharpi;                                                                        \
    const StateSlice slice{states, index, positions, starts, after, state_stride, offset, tokens}; \
    const int head = blockIdx.y;                                                                   \
    delta_net<HELD>(qkv, beta, alpha, a[head], dt_bias[head], out, slice,                          \
                    {slice.first(), slice.end(), key_heads, value_heads, key_dim, value_dim,       \
                     stride, tiled, epsilon});                                                     \
  }

#if HAS_SIZE(16)
DELTA_NET(delta_net_16, 16, 2)
#endif
#if HAS_SIZE(32)
DELTA_NET(delta_net_32, 32, 2)
#endif
#if HAS_SIZE(128)
DELTA_NET(delta_net_128, 128, 1)
#endif
