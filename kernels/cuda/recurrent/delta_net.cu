// The gated delta rule with one decay for each head.
#include "delta_rule.cuh"

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
    delta_rule<HELD>(qkv, beta, HeadDecay{alpha, a[head], dt_bias[head], 0.f}, out, slice,         \
                     {slice.first(), slice.end(), key_heads, value_heads, key_dim, value_dim,      \
                      stride, tiled, epsilon});                                                    \
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
