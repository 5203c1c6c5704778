// Computes the cosines and sines of position * frequency, times `scale`.
#include "common/launch_order.cuh"
#include "common/types.cuh"

// frequencies: (half,); positions: (T,); angles: (T, 2, half), cosines then sines. Grid (T, blocks
// of `half`). The product is rounded to float, as in the reference; cosf and sinf reduce any range.
KERNEL __launch_bounds__(128) rope_angles(const float* frequencies, const int* positions,
                                          float* angles, int half, float scale) {
  sharpi::wait_for_last_launch();
  const int i = blockIdx.y * blockDim.x + threadIdx.x;
  if (i >= half) return;
  const float angle = __fmul_rn(float(positions[blockIdx.x]), frequencies[i]);
  float* row = angles + size_t(blockIdx.x) * 2 * half;
  row[i] = cosf(angle) * scale;
  row[half + i] = sinf(angle) * scale;
}
