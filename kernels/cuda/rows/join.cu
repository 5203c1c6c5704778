// Concatenates two tensors row by row.
#include "common/types.cuh"

// first: (runs, a); second: (runs, b); out: (runs, a + b), `count` values in total.
KERNEL __launch_bounds__(256)
    join(const float* first, const float* second, float* out, int a, int b, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int run = i / (a + b), at = i % (a + b);
  out[i] = at < a ? first[size_t(run) * a + at] : second[size_t(run) * b + at - a];
}
