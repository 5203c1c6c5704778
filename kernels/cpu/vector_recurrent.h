// The part of vector_ops_impl.h that serves recurrent layers: one token of one head, or of a run of channels.
//
// Vectors lie along the values of a head, so that no sum crosses lanes: a value's result is the same whatever its neighbours.
#pragma once
#include "simd.h"
#include "vector_ops.h"

namespace {
using namespace sharpi;

// The machine's own vectors: wider ones, which the compiler would cut up, do not stay in registers.
#if defined(__AVX512F__)
constexpr int kOwnLanes = 16, kStateVectors = 8;
#elif defined(__AVX__)
constexpr int kOwnLanes = 8, kStateVectors = 4;
#else
constexpr int kOwnLanes = 4, kStateVectors = 4;
#endif
typedef float Own __attribute__((vector_size(kOwnLanes * sizeof(float))));

inline Own load_own(const float* p) {
  Own v;
  memcpy(&v, p, sizeof v);
  return v;
}
inline void store_own(float* p, Own v) { memcpy(p, &v, sizeof v); }

void convolve(const ConvolutionStep& c) {
  int i = 0;
  for (; i + kOwnLanes <= c.channels; i += kOwnLanes) {
    Own sum = c.bias ? load_own(c.bias + i) : Own{};
    for (int j = 0; j < c.kernel; j++) sum += load_own(c.weight + (size_t)j * c.stride + i) * load_own(c.rows[j] + i);
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

// N vectors of a row that `count` values of are there; the rest is zero.
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

// Everything is taken out of `s` first: the compiler cannot know that a store into the state leaves it alone.
template <int N>
void delta_columns(const DeltaStep& s, int column, int count) {
  const float *const query = s.query, *const key = s.key;
  const int keys = s.keys, stride = s.stride;
  const float decay = s.decay;
  Own recalled[N] = {}, correction[N], out[N] = {};
  float* row = s.state + column;
  for (int k = 0; k < keys; k++, row += stride) {
#pragma GCC unroll 8
    for (int n = 0; n < N; n++) recalled[n] += key[k] * load_own(row + n * kOwnLanes);
  }
  load_values<N>(s.value + column, count, correction);
  for (int n = 0; n < N; n++) correction[n] = s.beta * (correction[n] - decay * recalled[n]);
  row = s.state + column;
  for (int k = 0; k < keys; k++, row += stride) {
#pragma GCC unroll 8
    for (int n = 0; n < N; n++) {
      const Own next = decay * load_own(row + n * kOwnLanes) + key[k] * correction[n];
      store_own(row + n * kOwnLanes, next);
      out[n] += query[k] * next;
    }
  }
  store_values<N>(s.out + column, out, count);
}

template <int N>
void scan_columns(const ScanStep& s, int column, int count) {
  const float *const write = s.write, *const read = s.read;
  const int keys = s.keys, stride = s.stride;
  const float decay = s.decay;
  Own x[N], taken[N], out[N] = {};
  load_values<N>(s.x + column, count, x);
  for (int n = 0; n < N; n++) taken[n] = s.dt * x[n];
  float* row = s.state + column;
  for (int k = 0; k < keys; k++, row += stride) {
#pragma GCC unroll 8
    for (int n = 0; n < N; n++) {
      const Own next = decay * load_own(row + n * kOwnLanes) + write[k] * taken[n];
      store_own(row + n * kOwnLanes, next);
      out[n] += read[k] * next;
    }
  }
  for (int n = 0; n < N; n++) out[n] += s.skip * x[n];
  store_values<N>(s.out + column, out, count);
}

// Calls wide(column) for as many groups of kStateVectors as there are, then narrow(column, count) for each 16 left.
template <class Wide, class Narrow>
inline void over_columns(int values, Wide wide, Narrow narrow) {
  constexpr int kWide = kStateVectors * kOwnLanes;
  int column = 0;
  for (; column + kWide <= values; column += kWide) wide(column);
  for (; column < values; column += kLanes) narrow(column, values - column < kLanes ? values - column : kLanes);
}

void delta_step(const DeltaStep& s) {
  over_columns(
      s.values, [&](int column) { delta_columns<kStateVectors>(s, column, kStateVectors * kOwnLanes); },
      [&](int column, int count) { delta_columns<kLanes / kOwnLanes>(s, column, count); });
}

void scan_step(const ScanStep& s) {
  over_columns(
      s.values, [&](int column) { scan_columns<kStateVectors>(s, column, kStateVectors * kOwnLanes); },
      [&](int column, int count) { scan_columns<kLanes / kOwnLanes>(s, column, count); });
}

// out = factor * x / sqrt(|x|^2 + epsilon)
void unit_length(const float* x, float* out, int n, float epsilon, float factor) {
  F32x16 squares{};
  over_lanes(n, [&](int i, int count) {
    const F32x16 v = load_part(x + i, count);
    squares += v * v;
  });
  const float scale = factor / std::sqrt(sum(squares) + epsilon);
  over_lanes(n, [&](int i, int count) { store_part(out + i, load_part(x + i, count) * scale, count); });
}

}  // namespace
