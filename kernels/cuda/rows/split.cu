// Splits each row into up to three parts; a part whose output is null is skipped. The first part
// can be quantised, too.
#include "common/launch_order.cuh"
#include "quant/activations.cuh"

namespace sharpi {

// A part of each row: the `width` values from `begin` on go to out (runs, width).
struct RunPart {
  float* out;
  int begin, width;

  __device__ __forceinline__ void take(int run, int at, float x) const {
    const unsigned column = unsigned(at - begin);
    if (out && column < unsigned(width)) out[size_t(run) * width + column] = x;
  }
};

}  // namespace sharpi

// x: (runs, a + b + c), `count` values in total; a, b and c each have an output, or null.
// quantised: activation rows (runs, a) of the first part, of which a and b + c are multiples of 32;
// or null.
KERNEL __launch_bounds__(256)
    split(const float* x, float* out_a, float* out_b, float* out_c, uint8_t* quantised, int a,
          int b, int c, int count, int planes) {
  sharpi::wait_for_last_launch();
  using namespace sharpi;
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int run = i / (a + b + c), at = i % (a + b + c);
  const float value = x[i];
  const RunPart parts[] = {{out_a, 0, a}, {out_b, a, b}, {out_c, a + b, c}};
#pragma unroll
  for (const RunPart& part : parts) part.take(run, at, value);
  if (quantised && at < a) quantise_32(value, quantised, run, a, planes, at / 32);
}
