// Copies the rows of x with the listed indices.
#include "common/launch_order.cuh"
#include "common/types.cuh"

// x: (any, width); rows: (outputs,); out: (outputs, width). Grid (outputs, blocks of width).
KERNEL __launch_bounds__(256) gather(const float* x, const int* rows, float* out, int width) {
  sharpi::wait_for_last_launch();
  const int i = blockIdx.y * blockDim.x + threadIdx.x;
  if (i >= width) return;
  out[size_t(blockIdx.x) * width + i] = x[size_t(rows[blockIdx.x]) * width + i];
}
