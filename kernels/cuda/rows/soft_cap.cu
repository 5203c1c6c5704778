// Computes cap * tanh(x / cap), in place.
#include "common/types.cuh"

KERNEL __launch_bounds__(256) soft_cap(float* x, int count, float cap) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) x[i] = cap * tanhf(x[i] / cap);
}
