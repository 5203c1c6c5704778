// Computes residual + scale * the sum over a token's experts of weight * value, in ascending order
// of expert ids.
#include "expert_items.cuh"

// values (tokens * used, rows)
KERNEL __launch_bounds__(256)
    experts_grouped_merge(const float* values, const int* ids, const float* weights,
                          const float* residual, float* out, float scale, int used, int rows) {
  using namespace sharpi;
  __shared__ int order[kMaxUsed];
  const int token = int(blockIdx.x), row = int(blockIdx.y * blockDim.x + threadIdx.x);
  order_experts(ids ? ids + token * used : nullptr, used, order);
  __syncthreads();
  if (row >= rows) return;
  float sum = 0.f;
  for (int i = 0; i < used; i++) {
    const int item = token * used + order[i];
    const float weight = weights ? weights[item] : 1.f;
    sum = __fmaf_rn(weight, values[size_t(item) * rows + row], sum);
  }
  const Merged merged = {residual, scale, out};
  merged.store(size_t(token) * rows + row, sum);
}
