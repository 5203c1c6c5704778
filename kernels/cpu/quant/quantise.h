// Rounds floats to int8 with one scale for every 32, in plain loops that compilers vectorise.
//
// scale = max |x| / 127, rounded to nearest, ties to even. A NaN or an infinity among the values
// gives a scale that is not finite, which shows in the result.
#pragma once
#include <algorithm>
#include <cstring>

#include "matmul/matmul.h"

namespace {
using namespace sharpi;

inline int32_t float_bits(float x) {
  int32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

// Returns the largest magnitude, or NaN if there is one: magnitudes sort like integers, with NaN at
// the top.
inline float peak_of(const float* x) {
  int32_t peak = 0;
  for (int i = 0; i < 32; i++) peak = std::max(peak, float_bits(x[i]) & 0x7fffffff);
  float value;
  memcpy(&value, &peak, sizeof value);
  return value;
}

inline void set_sums(Activation& a) {
  for (int g = 0; g < 16; g++) {
    int sums[2] = {};
    for (int i = 0; i < 16; i++) sums[i / 2 % 2] += a.q[16 * g + i];
    a.sum16[g] = int16_t(sums[0] + sums[1]);
    a.sum8[g] = int16_t(sums[1]);
  }
  for (int g = 0; g < 8; g++) a.sum32[g] = int16_t(a.sum16[2 * g] + a.sum16[2 * g + 1]);
}

inline void quantise_part(const float* x, int8_t* q, float& scale) {
  constexpr float kSmallest = 1e-35f;   // below it, 127 / peak would not be finite
  constexpr float kMagic = 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer
  const float peak = peak_of(x);
  const float inverse = peak < kSmallest ? 0.f : 127.f / peak;
  for (int i = 0; i < 32; i++)
    q[i] = int8_t(float_bits(x[i] * inverse + kMagic) - float_bits(kMagic));
  scale = peak < kSmallest ? 0.f : peak / 127.f;
}

inline void quantise_block(const float* x, Activation& a) {
  for (int part = 0; part < 8; part++) quantise_part(x + 32 * part, a.q + 32 * part, a.scale[part]);
  set_sums(a);
}

inline void quantise_row(const float* values, int n, Activation* out) {
  for (; n >= 256; n -= 256, values += 256) quantise_block(values, *out++);
  if (n <= 0) return;
  float padded[256] = {};
  std::copy_n(values, n, padded);
  quantise_block(padded, *out);
}

}  // namespace
