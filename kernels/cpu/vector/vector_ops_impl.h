// The body of every vector_ops_*.cpp: one source, compiled with different target flags.
#pragma once
#include <cmath>

#include "attention/attend_page.h"
#include "attention/attend_page_packed.h"
#include "attention/kv_f16.h"
#include "attention/rotate.h"

namespace {
using namespace sharpi;

// Calls body(i, count): full groups of 16 first, then the rest.
template <class Body>
inline void over_lanes(int n, Body body) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, kLanes);
  if (i < n) body(i, n - i);
}
inline F32x16 load_part(const float* p, int count) {
  if (count == kLanes) return load(p);
  float x[kLanes] = {};
  memcpy(x, p, count * sizeof(float));
  return load(x);
}
inline void store_part(float* p, F32x16 v, int count) {
  if (count == kLanes) return store(p, v);
  float x[kLanes];
  store(x, v);
  memcpy(p, x, count * sizeof(float));
}

void rms_norm(const float* x, const float* weight, float* out, int n, float epsilon) {
  F32x16 squares{};
  over_lanes(n, [&](int i, int count) {
    const F32x16 v = load_part(x + i, count);
    squares += v * v;
  });
  const float scale = 1.f / std::sqrt(sum(squares) / float(n) + epsilon);
  over_lanes(n, [&](int i, int count) {
    store_part(out + i, load_part(x + i, count) * scale * load_part(weight + i, count), count);
  });
}

inline F32x16 erf_gelu(F32x16 x) {
  float v[kLanes];
  store(v, x);
  for (float& e : v) e = 0.5f * e * (1.f + std::erf(e * 0.70710678f));
  return load(v);
}
constexpr float kSwigluLimit = 7.f;  // gpt-oss
inline F32x16 clamped(F32x16 x, float limit) {
  return max(min(x, broadcast(limit)), broadcast(-limit));
}
// Returns what the up value becomes before it is multiplied by the activated gate.
inline F32x16 linear_half(Activate kind, F32x16 x) {
  switch (kind) {
    case Activate::ClampedSwiglu: return clamped(x, kSwigluLimit) + 1.f;
    case Activate::LimitedSilu7: return clamped(x, 7.f);
    case Activate::LimitedSilu16: return clamped(x, 16.f);
    default: return x;
  }
}
inline F32x16 activate(Activate kind, F32x16 x) {
  switch (kind) {
    case Activate::Silu: return x * sigmoid(x);
    case Activate::GeluTanh: return x * sigmoid(1.5957691f * (x + 0.044715f * x * x * x));
    case Activate::Gelu: return erf_gelu(x);
    case Activate::Relu2: return max(x, F32x16{}) * max(x, F32x16{});
    case Activate::Sigmoid: return sigmoid(x);
    case Activate::Identity: return x;
    case Activate::ClampedSwiglu: {
      const F32x16 limited = min(x, broadcast(kSwigluLimit));
      return limited * sigmoid(1.702f * limited);
    }
    case Activate::LimitedSilu7: return min(x * sigmoid(x), broadcast(7.f));
    case Activate::LimitedSilu16: return min(x * sigmoid(x), broadcast(16.f));
  }
  return x;
}

void gated(Activate kind, const float* gate, const float* up, float* out, int n) {
  over_lanes(n, [&](int i, int count) {
    const F32x16 linear = linear_half(kind, load_part(up + i, count));
    store_part(out + i, activate(kind, load_part(gate + i, count)) * linear, count);
  });
}

void add_scaled(const float* a, const float* b, float scale, float* out, int n) {
  over_lanes(n, [&](int i, int count) {
    const F32x16 base = a ? load_part(a + i, count) : F32x16{};
    store_part(out + i, base + scale * load_part(b + i, count), count);
  });
}

void rope(float* head, const float* cosines, const float* sines, int half, bool interleaved) {
  if (interleaved) {
    for (int i = 0; i < half; i++) {
      const float a = head[2 * i], b = head[2 * i + 1];
      head[2 * i] = a * cosines[i] - b * sines[i];
      head[2 * i + 1] = b * cosines[i] + a * sines[i];
    }
    return;
  }
  over_lanes(half, [&](int i, int count) {
    const F32x16 a = load_part(head + i, count), b = load_part(head + half + i, count);
    const F32x16 c = load_part(cosines + i, count), s = load_part(sines + i, count);
    store_part(head + i, a * c - b * s, count);
    store_part(head + half + i, b * c + a * s, count);
  });
}

void turn_rows(const uint16_t* rows, int dim, Visible range, uint16_t* keys) {
  const size_t panel = size_t(kPanel) * dim;
  for (int p = range.begin / kPanel; p * kPanel < range.end; p++)
    for (int d = 0; d < dim; d += kLanes) {
      F32x16 tile[kPanel];
      const uint16_t* from = rows + p * panel + d;
      for (int i = 0; i < kPanel; i++, from += dim) {
        __builtin_prefetch(from + panel, 0, 2);  // the next panel, or page
        tile[i] = load_half(from);
      }
      transpose(tile);
      for (int i = 0; i < kLanes; i++) store_half(keys + p * panel + (d + i) * kPanel, tile[i]);
    }
}

void merge(SoftmaxState& into, float* sums, const SoftmaxState& part, const float* part_sums,
           int n) {
  if (part.total == 0) return;
  const float peak = std::fmax(into.peak, part.peak);
  const float old_scale = into.total == 0 ? 0.f : std::exp(into.peak - peak);
  const float new_scale = std::exp(part.peak - peak);
  over_lanes(n, [&](int i, int count) {
    store_part(sums + i,
               load_part(sums + i, count) * old_scale + load_part(part_sums + i, count) * new_scale,
               count);
  });
  into = {peak, into.total * old_scale + part.total * new_scale, 0.f};
}

}  // namespace

#include "vector_recurrent.h"

namespace {

template <class Type>
constexpr void add_packed(VectorOps& ops) {
  const int layout = kv_layout(Type::kType, false);
  ops.keys[layout] = {takes_all, store_packed_key<Type>, prepare_floats, unpack_keys<Type>,
                      packed_scores<kTypeHasMinimum<Type>>};
  ops.values[layout] = {takes_all, store_packed_value<Type>, unpack_values<Type>,
                        packed_values<kTypeHasMinimum<Type>>};
}

constexpr VectorOps make_vector_ops(const char* name) {
  VectorOps ops{name,  rms_norm, gated,       add_scaled, rope,
                {},    {},       attend_page, turn_rows,  rotate,
                merge, convolve, delta_step,  scan_step,  unit_length};
  const int f16 = kv_layout(KvType::F16, false);
  ops.keys[f16] = {takes_all, store_key_f16, prepare_floats, nullptr, half_scores};
  ops.values[f16] = {takes_all, store_value_f16, nullptr, half_values};
  each_packed_type([&](auto type) { add_packed<decltype(type)>(ops); });
  return ops;
}

}  // namespace
