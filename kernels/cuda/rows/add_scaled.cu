// Computes a + scale * b, or scale * b where a is null; may be in place.
#include "common/launch_order.cuh"
#include "common/types.cuh"

KERNEL __launch_bounds__(256)
    add_scaled(const float* a, const float* b, float* out, int count, float scale) {
  sharpi::wait_for_last_launch();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = (a ? a[i] : 0.f) + scale * b[i];
}
