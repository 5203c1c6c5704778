// Computes x / rms(x) * weight over each group of `width` columns, as floats and/or quantised rows.
//
// A block takes `set` groups of a token, as many as fill whole blocks of 32 columns, so that no
// quant block of 32 is split between two thread blocks.
#include "common/block_sums.cuh"
#include "common/launch_order.cuh"
#include "quant/activations.cuh"

namespace sharpi {

// Returns 1 / rms of one group, the same on every thread.
__device__ __forceinline__ float inverse_rms(const float* x, int width, float epsilon,
                                             float* parts) {
  float sum = 0.f;
  for (int i = threadIdx.x; i < width; i += blockDim.x) sum += x[i] * x[i];
  return 1.f / sqrtf(sum_block(sum, parts) / width + epsilon);
}

}  // namespace sharpi

// x, out: (T, groups * width); weight: (width,), or (groups * width,) where each group has its own.
// Grid (T, groups / set). May be in place. `out` or `quantised` may be null.
KERNEL __launch_bounds__(1024)
    rms_norm(const float* x, const float* weight, float* out, uint8_t* quantised, int width,
             int groups, int set, int weight_per_group, float epsilon, int planes) {
  sharpi::wait_for_last_launch();
  using namespace sharpi;
  __shared__ float parts[2][kWarp];
  __shared__ float inverse[kWarp];
  const int token = blockIdx.x, columns = groups * width, begin = blockIdx.y * set * width;
  const float* row = x + size_t(token) * columns;
  for (int g = 0; g < set; g++) {
    const float each = inverse_rms(row + begin + g * width, width, epsilon, parts[g % 2]);
    if (threadIdx.x == 0) inverse[g] = each;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < set * width; i += blockDim.x) {
    const int at = begin + i;
    const float y = row[at] * inverse[i / width] * weight[weight_per_group ? at : at % width];
    if (out) out[size_t(token) * columns + at] = y;
    if (quantised) quantise_32(y, quantised, token, columns, planes, at / 32);
  }
}
