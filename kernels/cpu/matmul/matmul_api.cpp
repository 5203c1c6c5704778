// The C surface of the matrix kernels, on one thread: for tests and measurements, not for the
// engine.
#include <algorithm>
#include <new>
#include <vector>

#include "tiles.h"

#define SHARPI_API extern "C" __attribute__((visibility("default")))

using namespace sharpi;

namespace {

enum Failure : int { kDone = 0, kUnknownIsa = 1, kUnknownType = 2, kBadShape = 3, kNoMemory = 4 };

struct alignas(64) TileRow {
  float values[kTileRows];
};

struct Tokens {
  std::vector<Activation> rounded;
  std::vector<const void*> pointers;
};

Tokens make_tokens(const MatmulKernels& kernels, bool floats, const float* x, int tokens,
                   int columns) {
  Tokens result;
  if (!floats) result.rounded.resize(size_t(tokens) * activation_blocks(columns));
  for (int t = 0; t < tokens; t++, x += columns) {
    Activation* row = result.rounded.data() + size_t(t) * activation_blocks(columns);
    if (!floats) kernels.quantise(x, columns, row);
    result.pointers.push_back(floats ? (const void*)x : row);
  }
  return result;
}

Failure check(const Isa* isa, QuantType type, int64_t values) {
  if (!isa) return kUnknownIsa;
  if (!block_values(type)) return kUnknownType;
  return values > 0 && values % block_values(type) == 0 ? kDone : kBadShape;
}

void multiply(ProductFn product, const Tokens& x, const uint8_t* weights, QuantType type, int rows,
              int columns, float* out) {
  const int tokens = int(x.pointers.size());
  std::vector<TileRow> tile(tokens);
  for (int first = 0; first < rows; first += kTileRows) {
    Product p = tile_product(weights, type, rows, columns, first);
    p.tokens = x.pointers.data();
    p.num_tokens = tokens;
    p.out = tile[0].values;
    p.next = first + kTileRows < rows ? p.rows + kTileRows * p.row_bytes : nullptr;
    product(p);
    for (int t = 0; t < tokens; t++)
      std::copy_n(tile[t].values, p.num_rows, out + size_t(t) * rows + first);
  }
}

}  // namespace

// Multiplies weights (rows, columns) of a quant type with x (tokens, columns) into out (tokens,
// rows). Returns 0 or a Failure.
SHARPI_API int sharpi_matmul(const char* isa_name, int type_id, int precision, const void* weights,
                             int rows, int columns, const float* x, int tokens, float* out) {
  const Isa* isa = find_isa(isa_name);
  const QuantType type = QuantType(type_id);
  if (const Failure failure = check(isa, type, columns)) return failure;
  if (rows < 1 || tokens < 1) return kBadShape;
  const ProductFn product = isa->matmul->product(type, Precision(precision));
  if (!product) return kUnknownType;
  try {
    const bool floats = reads_floats(type, Precision(precision));
    const Tokens made = make_tokens(*isa->matmul, floats, x, tokens, columns);
    multiply(product, made, static_cast<const uint8_t*>(weights), type, rows, columns, out);
  } catch (const std::bad_alloc&) {
    return kNoMemory;
  }
  return kDone;
}

// Dequantises one row of `values` weights to float32. Returns 0 or a Failure.
SHARPI_API int sharpi_dequantise(const char* isa_name, int type_id, const void* data, int values,
                                 float* out) {
  const Isa* isa = find_isa(isa_name);
  if (const Failure failure = check(isa, QuantType(type_id), values)) return failure;
  isa->matmul->dequantise(QuantType(type_id), static_cast<const uint8_t*>(data), values, out);
  return kDone;
}

// Rounds values (n) to ceil(n / 256) Activation blocks. Returns 0 or a Failure.
SHARPI_API int sharpi_quantise(const char* isa_name, const float* values, int n, void* out) {
  const Isa* isa = find_isa(isa_name);
  if (!isa) return kUnknownIsa;
  if (n < 1) return kBadShape;
  isa->matmul->quantise(values, n, static_cast<Activation*>(out));
  return kDone;
}
