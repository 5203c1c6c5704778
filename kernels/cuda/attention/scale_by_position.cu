// Multiplies x by 1 + rate * ln(1 + floor((position + offset) / interval)), in place.
#include "common/types.cuh"

// x: (T, width); positions: (T,). Grid (blocks of width, T).
KERNEL __launch_bounds__(256) scale_by_position(float* x, const int* positions, int width,
                                                int interval, float rate, int offset) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= width) return;
  const int passed = (positions[blockIdx.y] + offset) / interval;
  x[size_t(blockIdx.y) * width + i] *= __fmaf_rn(rate, log1pf(float(passed)), 1.f);
}
