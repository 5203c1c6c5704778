// Computes 1 / (1 + e^-x), in place.
#include "common/types.cuh"

KERNEL __launch_bounds__(256) sigmoid(float* x, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) x[i] = 1.f / (1.f + expf(-x[i]));
}
