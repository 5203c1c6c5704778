// Multiplies some rows of one expert's matrix by the activations of some of its items.
#pragma once
#include "expert_items.cuh"

namespace sharpi {

// Block x of the grid computes as many rows as its lane groups take; out (items, rows).
template <class Dot, int kMany>
__device__ __forceinline__ void expert_product(const ExpertMatrix& matrix, const float* weights,
                                               const Activations& x, const Items& items,
                                               int lane_bits, float* out) {
  constexpr int kRows = Dot::kRowsAtOnce;
  const LaneGroup at = lane_group(lane_bits);
  const int first = (int(blockIdx.x) * at.groups + at.group) * kRows;
  const uint8_t* rows[kRows];
#pragma unroll
  for (int r = 0; r < kRows; r++)
    rows[r] = matrix.weights + min(first + r, matrix.rows - 1) * Dot::row_bytes(x.columns);
  int tokens[kMany];
  rows_of_items(items, tokens);
  float sum[kMany][kRows];
  dot_rows<Dot>(at, rows, x, tokens, items.count, sum);
  if (at.lane != 0) return;
#pragma unroll
  for (int i = 0; i < kMany; i++) {
    if (i >= items.count) break;
    const int item = items.item(i), result_row = items.result_row(i);
#pragma unroll
    for (int r = 0; r < kRows; r++)
      if (first + r < matrix.rows)
        out[size_t(result_row) * matrix.rows + first + r] =
            item_value(matrix, weights, item, first + r, sum[i][r]);
  }
}

}  // namespace sharpi
