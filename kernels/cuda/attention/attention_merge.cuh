// Merges the partial results of attention over spans, in order.
#pragma once
#include "attention_spans.cuh"
#include "common/block_sums.cuh"
#include "hadamard.cuh"
#include "quant/activations.cuh"

namespace sharpi {

// The running state of a softmax: the largest score so far, the sum of weights, one weighted value.
struct Softmax {
  float peak, total, value;

  __device__ __forceinline__ void add(float score, float weight, float weighted) {
    const float next = fmaxf(peak, score);
    const float before = expf(peak - next), now = expf(score - next);
    total = __fmaf_rn(total, before, __fmul_rn(weight, now));  // so in every kernel that merges
    value = __fmaf_rn(value, before, __fmul_rn(weighted, now));
    peak = next;
  }
};

// Where the values of all heads go: floats and/or quantised rows (T, num_heads * value_dim); sinks:
// (num_heads,), one more score in each head's denominator, or null. hadamard: the size of the
// blocks in which values were transformed, which is undone here; 0: none.
struct MergedHeads {
  const float* sinks;
  float* out;
  uint8_t* quantised;
  int planes;
  int hadamard;
};

// Merges `count` heads of a token from `first` on, over the spans begin..end - 1, by a block.
// Values that were transformed are merged in place of their first span.
__device__ __forceinline__ void merge_heads(const Partials& partials, const MergedHeads& merged,
                                            int token, int num_heads, int first, int count,
                                            int begin, int end) {
  const int dim = partials.value_dim, columns = num_heads * dim;
  const int item = token * num_heads + first;
  const auto write = [&](int i, float y) {
    const int at = first * dim + i;
    if (merged.out) merged.out[size_t(token) * columns + at] = y;
    if (merged.quantised) quantise_32(y, merged.quantised, token, columns, merged.planes, at / 32);
  };
  for (int i = threadIdx.x; i < count * dim; i += blockDim.x) {
    const int own = item + i / dim;
    Softmax sum = {-infinity(), 0.f, 0.f};
    for (int span = begin; span < end; span++) {
      const float2 state = partials.state(own, span);
      sum.add(state.x, state.y, partials.value(own, span)[i % dim]);
    }
    if (merged.sinks) sum.add(merged.sinks[first + i / dim], 1.f, 0.f);
    const float y = sum.value / sum.total;
    if (merged.hadamard) partials.value(own, begin)[i % dim] = y;
    else write(i, y);
  }
  if (!merged.hadamard) return;
  __syncthreads();
  for (int head = threadIdx.x / kWarp; head < count; head += int(blockDim.x) / kWarp)
    transform_row(partials.value(item + head, begin), dim, merged.hadamard);
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < count * dim; i += blockDim.x)
    write(i, partials.value(item + i / dim, begin)[i % dim]);
}

}  // namespace sharpi
