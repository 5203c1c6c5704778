// Converts rows of floats to halves for cuBLAS matmuls, and the results back to floats.
//
// A row is divided by the power of two just above its largest magnitude: no value overflows, hardly
// any sum does, and no value loses a bit that a half has room for.
#include "common/block_sums.cuh"

namespace sharpi {

constexpr int kExponent = 0x7f800000;  // the exponent bits of a float
constexpr int kOneExponent = 1 << 23;
constexpr int kLargest = 253 * kOneExponent;  // its inverse is still a normal float

// Returns the power of two above a magnitude; 1 for infinity and NaN, which remain visible in the
// halves.
__device__ __forceinline__ float scale_above(float peak) {
  const int bits = __float_as_int(peak) & kExponent;
  if (bits == kExponent) return 1.f;
  return __int_as_float(min(bits + kOneExponent, kLargest));
}

// Converts a row; `peaks`: kWarp ints of shared memory. All threads of a block call it.
__device__ __forceinline__ void row_to_f16(const float* x, __half* out, float* scale, int width,
                                           int* peaks) {
  const int lane = threadIdx.x % kWarp;
  int peak = 0;  // magnitudes sort like integers; a NaN is largest
  for (int i = threadIdx.x; i < width; i += blockDim.x)
    peak = max(peak, __float_as_int(x[i]) & 0x7fffffff);
  peak = max_lanes(peak);
  if (lane == 0) peaks[threadIdx.x / kWarp] = peak;
  __syncthreads();
  peak = max_lanes(lane < int(blockDim.x) / kWarp ? peaks[lane] : 0);
  const float above = scale_above(__int_as_float(peak)), inverse = 1.f / above;
  if (threadIdx.x == 0) *scale = above;
  for (int i = threadIdx.x; i < width; i += blockDim.x) out[i] = __float2half_rn(x[i] * inverse);
}

}  // namespace sharpi

// x: (T, width); out: halves (T, width); scales: (T,), x = out * scale. Grid (T).
KERNEL __launch_bounds__(256) to_f16(const float* x, __half* out, float* scales, int width) {
  using namespace sharpi;
  __shared__ int peaks[kWarp];
  const size_t row = blockIdx.x;
  row_to_f16(x + row * width, out + row * width, scales + row, width, peaks);
}

// Does the same for the items of `experts` adjacent experts only, whose rows are their numbers, or
// without a list their indices. offsets (experts + 1,) and list: see group_routes. Grid (as many
// items as there may be).
KERNEL __launch_bounds__(256) items_to_f16(const float* x, const int* offsets, const int* list,
                                           __half* out, float* scales, int experts, int width) {
  using namespace sharpi;
  __shared__ int peaks[kWarp];
  const int index = offsets[0] + int(blockIdx.x);
  if (index >= offsets[experts]) return;
  const size_t row = list ? list[index] : index;
  row_to_f16(x + row * width, out + row * width, scales + row, width, peaks);
}

// Computes out = residual + scale * (factor * y * scales + bias); bias (width,) and residual (T,
// width) may be null. y: halves (T, width). `out` may be the residual. Grid (T, blocks of width).
KERNEL __launch_bounds__(256)
    from_f16(const __half* y, const float* scales, const float* bias, const float* residual,
             float* out, int width, float factor, float scale) {
  const int i = blockIdx.y * blockDim.x + threadIdx.x;
  if (i >= width) return;
  const size_t at = size_t(blockIdx.x) * width + i;
  const float product =
      __half2float(y[at]) * (factor * scales[blockIdx.x]) + (bias ? bias[i] : 0.f);
  out[at] = (residual ? residual[at] : 0.f) + scale * product;
}
