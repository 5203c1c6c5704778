// What attention over one span of positions leaves for the merge.
//
// For each (token, head, span) the span's state {largest score, sum of e^(score - largest)} and
// then the values weighted with e^(score - largest), value_dim floats. A span is always the same
// 256 positions, and spans are merged in order: the bits of a result depend neither on the number
// of tokens nor on the longest context that a launch allows for.
#pragma once
#include "common/types.cuh"

namespace sharpi {

constexpr int kSpan = 256;

// All partial results; `items` = T * num_heads.
struct Partials {
  float2* states;  // (items, max_spans)
  float* values;   // (items, max_spans, value_dim)
  int max_spans, value_dim;

  __device__ __forceinline__ Partials(float* scratch, int items, int spans, int dim)
      : states((float2*)scratch),
        values(scratch + size_t(items) * spans * 2),
        max_spans(spans),
        value_dim(dim) {}
  __device__ __forceinline__ float2& state(int item, int span) const {
    return states[size_t(item) * max_spans + span];
  }
  __device__ __forceinline__ float* value(int item, int span) const {
    return values + (size_t(item) * max_spans + span) * value_dim;
  }
};

// The first position that a query sees: it has a window of so many, or the chunk of so many that it
// is in; `window` 0 sees everything.
__device__ __forceinline__ int first_visible(int position, int window, int is_chunked) {
  if (window == 0) return 0;
  return is_chunked ? position - position % window : max(0, position - window + 1);
}

}  // namespace sharpi
