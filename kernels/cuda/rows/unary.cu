// Functions of single values, in place; what a to d are is said at Ops.unary.
#include "common/types.cuh"

namespace sharpi {

enum Unary { kSigmoid = 0, kSoftCap = 1, kClamp = 2 };

__device__ __forceinline__ float unary(float x, int function, float a, float b, float c, float d) {
  if (function == kSigmoid) return 1.f / (1.f + expf(-x));
  if (function == kSoftCap) return a * tanhf(x / a);
  if (function == kClamp) return fminf(fmaxf(x, -a), a);
  if (x > 0.f) return a * x * x + c * x;
  return (expm1f(fminf(x, d)) - x) * b + c * x;
}

}  // namespace sharpi

KERNEL __launch_bounds__(256)
    unary(float* x, int count, int function, float a, float b, float c, float d) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) x[i] = sharpi::unary(x[i], function, a, b, c, d);
}
