// Computes a causal convolution of each channel, and keeps the inputs that the next step needs.
//
// A thread takes 16 tokens of a sequence's channel. Only the first 16 tokens look back at the
// state, so the same threads replace it when they are done.
#include "common/gated.cuh"
#include "state.cuh"

namespace sharpi {

constexpr int kTokensEach = 16;  // the kernel looks back at most so many tokens

// One channel's inputs: the state (past, channels) followed by x (T, channels).
struct Inputs {
  const float* x;
  const float* state;
  int channels, past;
  bool is_new;

  __device__ __forceinline__ float at(int token) const {
    if (token >= 0) return x[size_t(token) * channels];
    return is_new ? 0.f : state[size_t(past + token) * channels];
  }
};

}  // namespace sharpi

// x, out: (T, channels); weight: (kernel, channels); bias: (channels,) or null; state: (kernel - 1,
// channels), oldest first, and after a token its inputs last. Grid (blocks of channels, runs of 16
// tokens of a sequence, sequences).
KERNEL __launch_bounds__(256)
    convolve(const float* x, const float* weight, const float* bias, float* out, float* states,
             const int* index, const int* positions, const int* starts, const int* after,
             int64_t stride, int64_t offset, int tokens, int channels, int kernel, int silu) {
  using namespace sharpi;
  const StateSlice slice{states, index, positions, starts, after, stride, offset, tokens};
  const int channel = blockIdx.x * blockDim.x + threadIdx.x, past = kernel - 1;
  if (channel >= channels) return;
  float* state = slice.at() + channel;
  const int first = slice.first(), count = slice.end() - first;
  x += size_t(first) * channels + channel;
  out += size_t(first) * channels + channel;
  const Inputs inputs{x, state, channels, past, slice.is_new()};
  const int begin = blockIdx.y * kTokensEach, end = min(begin + kTokensEach, count);
  for (int t = begin; t < end; t++) {
    float sum = bias ? bias[channel] : 0.f;
    for (int j = 0; j < kernel; j++)
      sum = __fmaf_rn(weight[size_t(j) * channels + channel], inputs.at(t - past + j), sum);
    out[size_t(t) * channels] = silu ? swish(sum, 1.f) : sum;
    if (slice.branches()) {
      float* next = slice.after_token(first + t) + channel;
      for (int j = 0; j < past; j++) next[size_t(j) * channels] = inputs.at(t + 1 - past + j);
    }
  }
  if (begin > 0 || slice.branches()) return;
  for (int j = 0; j < past; j++) state[size_t(j) * channels] = inputs.at(count - past + j);
}
