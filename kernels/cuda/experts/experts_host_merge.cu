// Computes residual + scale * the sum over a token's experts of weight * value, in ascending order
// of expert ids. The CPU has computed some of the values, see host_items.
#include "common/clock.cuh"
#include "expert_items.cuh"

// values (tokens * used, rows); host (host items, rows); host_rows (tokens * used,): the item's row
// of `host`, or -1 where its value is in `values`. waited: increased by the nanoseconds since
// `since`.
KERNEL __launch_bounds__(256)
    experts_host_merge(const float* values, const float* host, const int* host_rows, const int* ids,
                       const float* weights, const float* residual, float* out, float scale,
                       int used, int rows, const int64_t* since, int64_t* waited) {
  using namespace sharpi;
  __shared__ int order[kMaxUsed];
  const int token = int(blockIdx.x), row = int(blockIdx.y * blockDim.x + threadIdx.x);
  if (token + row == 0 && waited) *waited += nanoseconds() - *since;
  order_experts(ids + token * used, used, order);
  __syncthreads();
  if (row >= rows) return;
  float sum = 0.f;
  for (int i = 0; i < used; i++) {
    const int item = token * used + order[i], host_row = host_rows[item];
    const float* source =
        host_row < 0 ? values + size_t(item) * rows : host + size_t(host_row) * rows;
    sum = __fmaf_rn(weights ? weights[item] : 1.f, source[row], sum);
  }
  const Merged merged = {residual, scale, out};
  merged.store(size_t(token) * rows + row, sum);
}
