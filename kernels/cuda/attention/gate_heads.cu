// Multiplies each run of x by the activation of its gate, in place. A run is a head or one value.
#include "common/gated.cuh"

using namespace sharpi;

// x: (T, width); gate: (T, width / span). Grid (blocks of width, T).
KERNEL __launch_bounds__(256)
    gate_heads(float* x, const float* gate, int width, int span, int softplus) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= width) return;
  const float own = gate[size_t(blockIdx.y) * (width / span) + i / span];
  const float above = own > 0.f ? own : 0.f;
  const float factor = softplus ? above + log1pf(expf(-fabsf(own))) : sigmoid(own);
  x[size_t(blockIdx.y) * width + i] *= factor;
}
