// The part of vector_ops_impl.h for recurrent layers: one token of one head, or of a run of
// channels.
//
// Vectors lie along the values of a head, so that no sum crosses lanes: a value's result does not
// depend on the values beside it.
#pragma once
#include "simd.h"
#include "vector_ops.h"

namespace {
using namespace sharpi;

constexpr int kChains = kOwnLanes / 4;  // sums at a time: as many as the registers hold

void convolve(const ConvolutionStep& c) {
  int i = 0;
  for (; i + kOwnLanes <= c.channels; i += kOwnLanes) {
    Own sum = c.bias ? load_own(c.bias + i) : Own{};
    for (int j = 0; j < c.kernel; j++)
      sum += load_own(c.weight + (size_t)j * c.stride + i) * load_own(c.rows[j] + i);
    store_own(c.out + i, sum);
  }
  for (; i < c.channels; i++) {
    float sum = c.bias ? c.bias[i] : 0.f;
    for (int j = 0; j < c.kernel; j++) sum += c.weight[(size_t)j * c.stride + i] * c.rows[j][i];
    c.out[i] = sum;
  }
  if (!c.silu) return;
  over_lanes(c.channels, [&](int at, int count) {
    store_part(c.out + at, activate(Activate::Silu, load_part(c.out + at, count)), count);
  });
}

// Loads N vectors of a row of `count` values; the rest is zero.
template <int N>
inline void load_values(const float* p, int count, Own* out) {
  float padded[N * kOwnLanes] = {};
  memcpy(padded, p, count * sizeof(float));
  for (int n = 0; n < N; n++) out[n] = load_own(padded + n * kOwnLanes);
}
template <int N>
inline void store_values(float* p, const Own* values, int count) {
  float padded[N * kOwnLanes];
  for (int n = 0; n < N; n++) store_own(padded + n * kOwnLanes, values[n]);
  memcpy(p, padded, count * sizeof(float));
}

// Computes a sum over the keys, in kChains parts so that additions need not wait for each other.
template <int N>
struct KeySum {
  Own chain[kChains][N] = {};
  inline void total(Own* out) const {
    for (int n = 0; n < N; n++) {
      out[n] = chain[0][n];
      for (int c = 1; c < kChains; c++) out[n] += chain[c][n];
    }
  }
};

// Calls each(k, chain) for all keys in order.
template <class Each>
inline void over_keys(int keys, Each each) {
  int k = 0;
  for (; k + kChains <= keys; k += kChains)
#pragma GCC unroll 4
    for (int c = 0; c < kChains; c++) each(k + c, c);
  for (; k < keys; k++) each(k, 0);
}

// The panel is N vectors wide. All fields of `s` are copied first: the compiler cannot know that a
// store into the state leaves them alone.
template <int N, bool kByKey>
void delta_panel(const DeltaStep& s) {
  constexpr int kWidth = N * kOwnLanes;
  const float *const query = s.query, *const key = s.key, *const decays = s.decays;
  const float* const recall = kByKey ? s.recall : key;
  float* const state = s.state;
  const float decay = s.decay;
  Own recalled[N], correction[N], out[N];
  KeySum<N> sum;
  over_keys(s.keys, [&](int k, int c) {
#pragma GCC unroll 8
    for (int n = 0; n < N; n++)
      sum.chain[c][n] += recall[k] * load_own(state + k * kWidth + n * kOwnLanes);
  });
  sum.total(recalled);
  load_values<N>(s.value, s.values, correction);
  for (int n = 0; n < N; n++)
    correction[n] = s.beta * (correction[n] - (kByKey ? recalled[n] : decay * recalled[n]));
  sum = {};
  over_keys(s.keys, [&](int k, int c) {
#pragma GCC unroll 8
    for (int n = 0; n < N; n++) {
      float* at = state + k * kWidth + n * kOwnLanes;
      const Own next = (kByKey ? decays[k] : decay) * load_own(at) + key[k] * correction[n];
      store_own(at, next);
      sum.chain[c][n] += query[k] * next;
    }
  });
  sum.total(out);
  store_values<N>(s.out, out, s.values);
}

template <int N>
void delta_of_width(const DeltaStep& s) {
  s.decays ? delta_panel<N, true>(s) : delta_panel<N, false>(s);
}

void delta_step(const DeltaStep& s) {
  s.values > kLanes ? delta_of_width<2 * kLanes / kOwnLanes>(s)
                    : delta_of_width<kLanes / kOwnLanes>(s);
}

template <int N>
void scan_panel(const ScanStep& s) {
  constexpr int kWidth = N * kOwnLanes;
  const float *const write = s.write, *const read = s.read;
  float* const state = s.state;
  const float decay = s.decay;
  Own x[N], taken[N], out[N];
  load_values<N>(s.x, s.values, x);
  for (int n = 0; n < N; n++) taken[n] = s.dt * x[n];
  KeySum<N> sum;
  over_keys(s.keys, [&](int k, int c) {
#pragma GCC unroll 8
    for (int n = 0; n < N; n++) {
      float* at = state + k * kWidth + n * kOwnLanes;
      const Own next = decay * load_own(at) + write[k] * taken[n];
      store_own(at, next);
      sum.chain[c][n] += read[k] * next;
    }
  });
  sum.total(out);
  for (int n = 0; n < N; n++) out[n] += s.skip * x[n];
  store_values<N>(s.out, out, s.values);
}

void scan_step(const ScanStep& s) {
  s.values > kLanes ? scan_panel<2 * kLanes / kOwnLanes>(s) : scan_panel<kLanes / kOwnLanes>(s);
}

// Computes out = factor * x / sqrt(|x|^2 + epsilon).
void unit_length(const float* x, float* out, int n, float epsilon, float factor) {
  F32x16 squares{};
  over_lanes(n, [&](int i, int count) {
    const F32x16 v = load_part(x + i, count);
    squares += v * v;
  });
  const float scale = factor / std::sqrt(sum(squares) + epsilon);
  over_lanes(
      n, [&](int i, int count) { store_part(out + i, load_part(x + i, count) * scale, count); });
}

}  // namespace
