// Products in plain loops, left to the compiler's vectoriser: every type, every target.
//
// 256 columns of a tile are converted to float once and multiplied with all tokens; rounded
// activations are converted to the floats that they stand for. Per (row, token) the order of sums
// is fixed: sixteen running sums within a block, blocks in order.
#pragma once
#include <algorithm>
#include <cmath>

#include "quant/block_decode.h"
#include "quant/block_types.h"
#include "quant/quantise.h"

namespace {
using namespace sharpi;

// Computes a dot product with sixteen running sums, folded at the end.
inline float float_dot(const float* w, const float* x, int n) {
  float sums[16] = {};
  int i = 0;
  for (; i + 16 <= n; i += 16)
    for (int l = 0; l < 16; l++) sums[l] += w[i + l] * x[i + l];
  for (int l = 0; i + l < n; l++) sums[l] += w[i + l] * x[i + l];
  return sum(load(sums));
}

// Returns up to 256 values of a token from column `first`, in place or written to `buffer`.
inline const float* values_of(const void* token, int first, bool rounded, float* buffer) {
  if (!rounded) return static_cast<const float*>(token) + first;
  const Activation& a = static_cast<const Activation*>(token)[first / 256];
  for (int part = 0; part < 8; part++)
    for (int i = 0; i < 32; i++) buffer[32 * part + i] = float(a.q[32 * part + i]) * a.scale[part];
  return buffer;
}

template <QuantType kType, bool kRounded>
void tile_product(const Product& p) {
  float w[kTileRows][256], buffer[256];
  std::fill_n(p.out, size_t(p.num_tokens) * kTileRows, 0.f);
  for (int first = 0; first < p.num_columns; first += 256) {
    const int count = std::min(256, p.num_columns - first);
    for (int r = 0; r < p.num_rows; r++)
      dequantise_part(kType, p.rows + r * p.row_bytes, first, count, w[r]);
    for (int t = 0; t < p.num_tokens; t++) {
      const float* x = values_of(p.tokens[t], first, kRounded, buffer);
      for (int r = 0; r < p.num_rows; r++) p.out[t * kTileRows + r] += float_dot(w[r], x, count);
    }
  }
}

ProductFn plain_product(QuantType type, Precision precision) {
  switch (type) {
    case QuantType::F32: return tile_product<QuantType::F32, false>;
    case QuantType::F16: return tile_product<QuantType::F16, false>;
    case QuantType::BF16: return tile_product<QuantType::BF16, false>;
    default:
      return product_of(type, [&](auto constant) -> ProductFn {
        return precision == Precision::Exact ? tile_product<constant(), false>
                                             : tile_product<constant(), true>;
      });
  }
}

void plain_dequantise(QuantType type, const uint8_t* row, int num_columns, float* out) {
  for (int first = 0; first < num_columns; first += 256)
    dequantise_part(type, row, first, std::min(256, num_columns - first), out + first);
}

}  // namespace
