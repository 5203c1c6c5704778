// Kimi Delta Attention: the gated delta rule with a decay for each key of a head's state.
#include "delta_rule.cuh"

// As delta_net's arguments, but alpha: (T, value_heads * key_dim); dt_bias: (value_heads *
// key_dim,).
#define KIMI_DELTA(NAME, HELD, BLOCKS)                                                             \
  KERNEL __launch_bounds__(256, BLOCKS)                                                            \
      NAME(const float* qkv, const float* beta, const float* alpha, const float* a,                \
           const float* dt_bias, float* out, float* states, const int* index,                      \
           const int* positions, const int* starts, const int* after, int64_t state_stride,        \
           int64_t offset, int tokens, int key_heads, int value_heads, int key_dim, int value_dim, \
           int stride, int tiled, float epsilon, float floor) {                                    \
    using namespace sharpi;                                                                        \
    const StateSlice slice{states, index, positions, starts, after, state_stride, offset, tokens}; \
    __shared__ DecayedKeys decayed;                                                                \
    const int head = blockIdx.y;                                                                   \
    const KeyDecay decay{decayed, alpha, dt_bias + head * key_dim, a[head], floor};                \
    delta_rule<HELD>(qkv, beta, decay, out, slice,                                                 \
                     {slice.first(), slice.end(), key_heads, value_heads, key_dim, value_dim,      \
                      stride, tiled, epsilon});                                                    \
  }

#if HAS_SIZE(16)
KIMI_DELTA(kimi_delta_16, 16, 2)
#endif
#if HAS_SIZE(32)
KIMI_DELTA(kimi_delta_32, 32, 2)
#endif
#if HAS_SIZE(128)
KIMI_DELTA(kimi_delta_128, 128, 1)
#endif
