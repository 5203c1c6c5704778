// Rounds float rows to activation rows (activations.cuh): one warp per 32 columns of a token.
#include "activations.cuh"
#include "common/launch_order.cuh"

KERNEL __launch_bounds__(256)
    quantise(const float* x, uint8_t* quantised, int columns, int planes) {
  sharpi::wait_for_last_launch();
  using namespace sharpi;
  const int token = int(blockIdx.x);
  const int block = int(blockIdx.y * blockDim.x + threadIdx.x) / kWarp;
  if (block >= columns / 32) return;
  const float value = x[size_t(token) * columns + 32 * block + threadIdx.x % kWarp];
  quantise_32(value, quantised, token, columns, planes, block);
}
