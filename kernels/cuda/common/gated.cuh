// The activation functions of a gated feed-forward: act(gate) * up for one row.
//
// Fused multiply-adds are written out, so that every kernel gives the same bits. A NaN stays a NaN
// throughout.
#pragma once
#include "types.cuh"

namespace sharpi {

// The values are those of sharpi.ops.interface.Activation.
enum class GateKind : int {
  Silu = 0,
  GeluTanh = 1,
  Gelu = 2,
  Relu2 = 3,
  Sigmoid = 4,
  Identity = 5,
  ClampedSwiglu = 6,
  LimitedSilu7 = 7,
  LimitedSilu16 = 8
};

constexpr float kSwigluLimit = 7.f;

__device__ __forceinline__ float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }

// x * sigmoid(slope * x)
__device__ __forceinline__ float swish(float x, float slope) {
  return __fmul_rn(x, sigmoid(__fmul_rn(slope, x)));
}

// x * sigmoid(sqrt(8 / pi) * (x + 0.044715 * x^3))
__device__ __forceinline__ float gelu_tanh(float x) {
  const float cubic = __fmaf_rn(__fmul_rn(0.044715f, x), __fmul_rn(x, x), x);
  return __fmul_rn(x, sigmoid(__fmul_rn(1.5957691f, cubic)));
}

__device__ __forceinline__ float at_most(float x, float limit) { return x > limit ? limit : x; }

__device__ __forceinline__ float clamped(float x, float limit) {
  const float below = at_most(x, limit);
  return below < -limit ? -limit : below;
}

__device__ __forceinline__ float activated(GateKind kind, float x) {
  switch (kind) {
    case GateKind::Silu: return swish(x, 1.f);
    case GateKind::GeluTanh: return gelu_tanh(x);
    case GateKind::Gelu: return __fmul_rn(__fmul_rn(0.5f, x), 1.f + erff(x * 0.70710678f));
    case GateKind::Relu2: return x < 0.f ? 0.f : __fmul_rn(x, x);
    case GateKind::Sigmoid: return sigmoid(x);
    case GateKind::Identity: return x;
    case GateKind::ClampedSwiglu: return swish(at_most(x, kSwigluLimit), 1.702f);
    case GateKind::LimitedSilu7: return at_most(swish(x, 1.f), 7.f);
    case GateKind::LimitedSilu16: return at_most(swish(x, 1.f), 16.f);
  }
  return x;
}

// Returns what the up value becomes before it is multiplied by the activated gate.
__device__ __forceinline__ float other_half(GateKind kind, float x) {
  switch (kind) {
    case GateKind::ClampedSwiglu: return clamped(x, kSwigluLimit) + 1.f;
    case GateKind::LimitedSilu7: return clamped(x, 7.f);
    case GateKind::LimitedSilu16: return clamped(x, 16.f);
    default: return x;
  }
}

__device__ __forceinline__ float gated(GateKind kind, float gate, float up) {
  return __fmul_rn(activated(kind, gate), other_half(kind, up));
}

}  // namespace sharpi
