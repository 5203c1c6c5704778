// Products in plain loops, left to the compiler's vectoriser: every type, every target.
//
// A block of a row is decoded once and meets all tokens. Per (row, token) the order of sums is
// fixed: groups of 16 within a block, blocks in order.
#pragma once
#include <algorithm>
#include <cmath>

#include "block_decode.h"
#include "quantise.h"

namespace {
using namespace sharpi;

inline int32_t dot16(const int8_t* a, const int8_t* b) {
  int32_t sum = 0;
  for (int i = 0; i < 16; i++) sum += int32_t(a[i]) * b[i];
  return sum;
}

inline float block_product(const RowBlock& w, const Activation& x) {
  float sum = 0;
  for (int g = 0; g < 16; g++)
    sum += x.scale[g / 2] *
           (w.scale[g] * float(dot16(w.q + 16 * g, x.q + 16 * g)) - w.min[g] * float(x.sum16[g]));
  return sum;
}

template <QuantType kType>
void rounded_product(const Product& p) {
  std::fill_n(p.out, size_t(p.num_tokens) * kTileRows, 0.f);
  const size_t step = 256 / block_values(kType) * block_bytes(kType);
  for (int r = 0; r < p.num_rows; r++) {
    const uint8_t* row = p.rows + r * p.row_bytes;
    for (int b = 0; b * 256 < p.num_columns; b++) {
      RowBlock block;
      decode_row_block(kType, row + b * step, std::min(256, p.num_columns - b * 256), block);
      for (int t = 0; t < p.num_tokens; t++)
        p.out[t * kTileRows + r] +=
            block_product(block, static_cast<const Activation*>(p.tokens[t])[b]);
    }
  }
}

// Sixteen running sums, folded at the end.
inline float float_dot(const float* w, const float* x, int n) {
  float sums[16] = {};
  int i = 0;
  for (; i + 16 <= n; i += 16)
    for (int l = 0; l < 16; l++) sums[l] += w[i + l] * x[i + l];
  for (int l = 0; i + l < n; l++) sums[l] += w[i + l] * x[i + l];
  return sum(load(sums));
}

template <QuantType kType>
void exact_product(const Product& p) {
  std::fill_n(p.out, size_t(p.num_tokens) * kTileRows, 0.f);
  for (int r = 0; r < p.num_rows; r++) {
    const uint8_t* row = p.rows + r * p.row_bytes;
    for (int first = 0; first < p.num_columns; first += 256) {
      const int count = std::min(256, p.num_columns - first);
      float w[256];
      dequantise_part(kType, row, first, count, w);
      for (int t = 0; t < p.num_tokens; t++)
        p.out[t * kTileRows + r] +=
            float_dot(w, static_cast<const float*>(p.tokens[t]) + first, count);
    }
  }
}

template <QuantType kType>
ProductFn product_of(Precision precision) {
  return takes_floats(kType, precision) ? exact_product<kType> : rounded_product<kType>;
}

ProductFn plain_product(QuantType type, Precision precision) {
  switch (type) {
    case QuantType::F32:
      return product_of<QuantType::F32>(precision);
    case QuantType::F16:
      return product_of<QuantType::F16>(precision);
    case QuantType::BF16:
      return product_of<QuantType::BF16>(precision);
    case QuantType::Q4_0:
      return product_of<QuantType::Q4_0>(precision);
    case QuantType::Q4_1:
      return product_of<QuantType::Q4_1>(precision);
    case QuantType::Q5_0:
      return product_of<QuantType::Q5_0>(precision);
    case QuantType::Q5_1:
      return product_of<QuantType::Q5_1>(precision);
    case QuantType::Q8_0:
      return product_of<QuantType::Q8_0>(precision);
    case QuantType::IQ4_NL:
      return product_of<QuantType::IQ4_NL>(precision);
    case QuantType::MXFP4:
      return product_of<QuantType::MXFP4>(precision);
    case QuantType::Q2_K:
      return product_of<QuantType::Q2_K>(precision);
    case QuantType::Q3_K:
      return product_of<QuantType::Q3_K>(precision);
    case QuantType::Q4_K:
      return product_of<QuantType::Q4_K>(precision);
    case QuantType::Q5_K:
      return product_of<QuantType::Q5_K>(precision);
    case QuantType::Q6_K:
      return product_of<QuantType::Q6_K>(precision);
    case QuantType::IQ4_XS:
      return product_of<QuantType::IQ4_XS>(precision);
  }
  return nullptr;
}

void plain_dequantise(QuantType type, const uint8_t* row, int num_columns, float* out) {
  for (int first = 0; first < num_columns; first += 256)
    dequantise_part(type, row, first, std::min(256, num_columns - first), out + first);
}

}  // namespace
