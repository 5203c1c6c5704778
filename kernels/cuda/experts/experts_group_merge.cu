// Adds the sum over a token's experts within one group of expert ids to the sum over the previous
// groups. Group after group, experts are summed in ascending order, with the same bits as
// experts_grouped_merge.
#include "expert_items.cuh"

// values (rows of `item_rows`, rows); item_rows (tokens * used,): the row of each item, or -1 where
// the item has none; null: row `item`. Sums experts first..end - 1; with the last group `sums`
// (tokens, rows) becomes residual + scale * sum.
KERNEL __launch_bounds__(256)
    experts_group_merge(const float* values, const int* ids, const int* item_rows,
                        const float* weights, const float* residual, float* sums, float scale,
                        int used, int rows, int first, int end, int is_first, int is_last) {
  using namespace sharpi;
  __shared__ int order[kMaxUsed];
  const int token = int(blockIdx.x), row = int(blockIdx.y * blockDim.x + threadIdx.x);
  order_experts(ids + token * used, used, order);
  __syncthreads();
  if (row >= rows) return;
  const size_t at = size_t(token) * rows + row;
  float sum = is_first ? 0.f : sums[at];
  for (int i = 0; i < used; i++) {
    const int item = token * used + order[i];
    if (ids[item] < first || ids[item] >= end) continue;
    const int from = item_rows ? item_rows[item] : item;
    if (from < 0) continue;
    const float weight = weights ? weights[item] : 1.f;
    sum = __fmaf_rn(weight, values[size_t(from) * rows + row], sum);
  }
  const Merged merged = {residual, scale, sums};
  if (is_last) return merged.store(at, sum);
  sums[at] = sum;
}
