// The state space step of each head: the state decays, dt * x is added along B, and C reads the
// result. A block takes 32 values of a head and goes through a sequence's tokens in order.
#include "state.cuh"

namespace sharpi {

constexpr int kMaxKeys = 1024;

struct Mamba2Sizes {
  int first, end, heads, groups, head_dim, keys, stride;

  __device__ __forceinline__ int inner() const { return heads * head_dim; }
  __device__ __forceinline__ int written(int head) const { return head * groups / heads * keys; }
};

// A token's B and C for a head's keys; zeros pad them to the end.
struct WriteAndRead {
  float write[kMaxKeys], read[kMaxKeys];

  __device__ __forceinline__ void load(const float* b, const float* c, int keys, int held) {
    for (int i = threadIdx.x; i < held; i += blockDim.x) {
      write[i] = i < keys ? b[i] : 0.f;
      read[i] = i < keys ? c[i] : 0.f;
    }
  }
};

template <int kHeld>
__device__ __forceinline__ void mamba2(const float* xbc, const float* dts, float a, float skip,
                                       float dt_bias, float* out, const StateSlice& slice,
                                       const Mamba2Sizes& s) {
  __shared__ WriteAndRead rows;
  __shared__ WarpSums given;
  const int head = blockIdx.y, column = StateTile<kHeld>::column();
  const bool is_there = column < s.head_dim, branches = slice.branches();
  const size_t of_head = size_t(head) * s.keys * s.stride;
  StateTile<kHeld> tile;
  tile.load(slice.at() + of_head, s.keys, s.stride, is_there && !slice.is_new());
  for (int t = s.first; t < s.end; t++) {
    const float* row = xbc + size_t(t) * (s.inner() + 2 * s.groups * s.keys);
    const float* b = row + s.inner() + s.written(head);
    rows.load(b, b + s.groups * s.keys, s.keys, kStateWarps * kHeld);
    __syncthreads();
    const size_t gate = size_t(t) * s.heads + head;
    const float dt = softplus(dts[gate] + dt_bias);
    const float x = is_there ? row[head * s.head_dim + column] : 0.f;
    tile.write(rows.write, expf(a * dt), dt * x);
    given.put(tile.read(rows.read));
    __syncthreads();
    if (threadIdx.x < kWarp && is_there)
      out[gate * s.head_dim + column] = __fmaf_rn(skip, x, given.whole());
    if (branches) tile.store(slice.after_token(t) + of_head, s.keys, s.stride, is_there);
  }
  if (!branches) tile.store(slice.at() + of_head, s.keys, s.stride, is_there);
}

}  // namespace sharpi

// xbc: (T, width); dt: (T, heads); a, skip, dt_bias: (heads,); out: (T, heads * head_dim); state:
// (heads, keys, stride). Grid (head_dim / 32, heads, sequences).
#define MAMBA2(NAME, HELD, BLOCKS)                                                                 \
  KERNEL __launch_bounds__(256, BLOCKS) NAME(                                                      \
      const float* xbc, const float* dt, const float* a, const float* skip, const float* dt_bias,  \
      float* out, float* states, const int* index, const int* positions, const int* starts,        \
      const int* after, int64_t state_stride, int64_t offset, int tokens, int heads, int groups,   \
      int head_dim, int keys, int stride) {                                                        \
    using namespace sharpi;                                                                        \
    const StateSlice slice{states, index, positions, starts, after, state_stride, offset, tokens}; \
    const int head = blockIdx.y;                                                                   \
    mamba2<HELD>(xbc, dt, a[head], skip[head], dt_bias[head], out, slice,                          \
                 {slice.first(), slice.end(), heads, groups, head_dim, keys, stride});             \
  }

#if HAS_SIZE(16)
MAMBA2(mamba2_16, 16, 2)
#endif
#if HAS_SIZE(32)
MAMBA2(mamba2_32, 32, 2)
#endif
#if HAS_SIZE(128)
MAMBA2(mamba2_128, 128, 1)
#endif
