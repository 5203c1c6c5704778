// Keys and values of a page as f16 (kv_pages.h). Internal linkage: compiled with different target
// flags.
#pragma once
#include "kv_pages.h"
#include "vector/simd.h"

namespace {
using namespace sharpi;

inline void store_halves(const float* x, uint16_t* out, int n) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) store_half(out + i, load(x + i));
  for (; i < n; i++) out[i] = float_to_half(x[i]);
}

void store_key_f16(const float* key, int dim, int at, uint8_t* keys) {
  uint16_t* column = (uint16_t*)keys + size_t(at / kPanel) * dim * kPanel + at % kPanel;
  uint16_t halves[kLanes];
  for (int d = 0; d < dim; d += kLanes) {
    const int count = dim - d < kLanes ? dim - d : kLanes;
    store_halves(key + d, halves, count);
    for (int i = 0; i < count; i++) column[(d + i) * kPanel] = halves[i];
  }
}

void store_value_f16(const float* value, int dim, int at, uint8_t* values) {
  const int stride = (dim + kLanes - 1) / kLanes * kLanes;
  store_halves(value, (uint16_t*)values + size_t(at) * stride, dim);
}

}  // namespace
