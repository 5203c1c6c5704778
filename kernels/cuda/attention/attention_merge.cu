// Merges the partial results of attention.cu, span by span in order, into floats and/or rounded
// rows.
//
// A block takes `set` heads of a token, as many as fill whole blocks of 32 columns.
#include "attention_spans.cuh"
#include "common/block_sums.cuh"
#include "quant/activations.cuh"

namespace sharpi {

// The running state of a softmax: the largest score so far, the sum of weights, one weighted value.
struct Softmax {
  float peak, total, value;

  __device__ __forceinline__ void add(float score, float weight, float weighted) {
    const float next = fmaxf(peak, score);
    const float before = expf(peak - next), now = expf(score - next);
    total = total * before + weight * now;
    value = value * before + weighted * now;
    peak = next;
  }
};

}  // namespace sharpi

// positions: (T,); sinks: (num_heads,), one more score in each head's denominator, or null. out:
// (T, num_heads * value_dim), or null; `rounded` likewise. Grid (num_heads / set, T).
KERNEL __launch_bounds__(256)
    attention_merge(const float* scratch, const int* positions, const float* sinks, float* out,
                    uint8_t* rounded, int num_heads, int set, int max_spans, int value_dim,
                    int window, int is_chunked, int planes) {
  using namespace sharpi;
  const int token = blockIdx.y, columns = num_heads * value_dim;
  const int begin = first_visible(positions[token], window, is_chunked) / kSpan;
  const int end = positions[token] / kSpan + 1;
  const Partials partials((float*)scratch, gridDim.y * num_heads, max_spans, value_dim);
  for (int i = threadIdx.x; i < set * value_dim; i += blockDim.x) {
    const int head = blockIdx.x * set + i / value_dim, item = token * num_heads + head;
    Softmax sum = {-infinity(), 0.f, 0.f};
    for (int span = begin; span < end; span++) {
      const float2 state = partials.state(item, span);
      sum.add(state.x, state.y, partials.value(item, span)[i % value_dim]);
    }
    if (sinks) sum.add(sinks[head], 1.f, 0.f);
    const float y = sum.value / sum.total;
    const int at = blockIdx.x * set * value_dim + i;
    if (out) out[size_t(token) * columns + at] = y;
    if (rounded) round_32(y, rounded, token, columns, planes, at / 32);
  }
}
