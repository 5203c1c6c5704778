// The partial results that attention over one span of positions leaves for the merge.
//
// For each (token, head, span): the span's state {largest score, sum of e^(score - largest)}, and
// the values weighted with e^(score - largest), value_dim floats. A span is always the same 256
// positions, and spans are merged in order, so the bits of a result depend neither on the number of
// tokens nor on the longest context of a launch.
#pragma once
#include "common/types.cuh"

namespace sharpi {

constexpr int kSpan = 256;

// All partial results; `items` is T * num_heads.
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

// Returns the first position that a query sees: a window of `window` positions, or with is_chunked
// the chunk of `window` positions that it is in. A `window` of 0 sees everything.
__device__ __forceinline__ int first_visible(int position, int window, int is_chunked) {
  if (window == 0) return 0;
  return is_chunked ? position - position % window : max(0, position - window + 1);
}

}  // namespace sharpi
