// Computes (x - mean) / deviation * weight + bias of each row, as floats and/or quantised rows.
#include "common/block_sums.cuh"
#include "quant/activations.cuh"

// x, out: (T, width); weight, bias: (width,). `out` or `quantised` may be null; `quantised`
// requires a width that is a multiple of 32. Grid (T).
KERNEL __launch_bounds__(1024)
    layer_norm(const float* x, const float* weight, const float* bias, float* out,
               uint8_t* quantised, int width, float epsilon, int planes) {
  using namespace sharpi;
  __shared__ float sums[kWarp], squares[kWarp];
  const float* row = x + size_t(blockIdx.x) * width;
  float sum = 0.f, square = 0.f;
  for (int i = threadIdx.x; i < width; i += blockDim.x) sum += row[i];
  const float mean = sum_block(sum, sums) / width;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    const float distance = row[i] - mean;
    square += distance * distance;
  }
  const float inverse = 1.f / sqrtf(sum_block(square, squares) / width + epsilon);
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    const float y = (row[i] - mean) * inverse * weight[i] + bias[i];
    if (out) out[size_t(blockIdx.x) * width + i] = y;
    if (quantised) quantise_32(y, quantised, blockIdx.x, width, planes, i / 32);
  }
}
