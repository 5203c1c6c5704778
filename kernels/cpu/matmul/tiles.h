// Shared by the matrix operations: tiles of 32 rows, and rows of rounded activations.
#pragma once
#include <algorithm>

#include "isa.h"
#include "matmul.h"
#include "runtime/stage.h"

namespace sharpi {

inline int count_tiles(int rows) { return (rows + kTileRows - 1) / kTileRows; }
inline size_t row_bytes(QuantType type, int columns) {
  return size_t(columns) / block_values(type) * block_bytes(type);
}

// How the caller wants activations rounded: the ABI's precision. Int16 rounds twice, the second
// time the remainder of the first, so that a token is two rows of int8 whose products are added:
// small models need it, and are fast enough for it.
enum class Rounding : int32_t { Int8 = 0, None = 1, Int16 = 2 };

inline Precision kernel_precision(Rounding rounding) {
  return rounding == Rounding::None ? Precision::Exact : Precision::Int8;
}
inline int levels(Rounding rounding) { return rounding == Rounding::Int16 ? 2 : 1; }
inline bool reads_floats(QuantType type, Rounding rounding) {
  return reads_floats(type, kernel_precision(rounding));
}

inline int activation_blocks(int columns) { return (columns + 255) / 256; }
inline size_t activation_bytes(size_t rows, int columns, Rounding rounding) {
  return rows * levels(rounding) * activation_blocks(columns) * sizeof(Activation);
}
// Returns the blocks of a token's first level; the second follows.
inline Activation* activation_row(uint8_t* base, int row, int columns, Rounding rounding) {
  return reinterpret_cast<Activation*>(base) +
         size_t(row) * levels(rounding) * activation_blocks(columns);
}

// Rounds up to 256 values to block `block` of a token's row of `columns`, on both levels.
inline void round_block(const Isa& isa, const float* x, int count, Activation* row, int block,
                        int columns, Rounding rounding) {
  Activation& first = row[block];
  isa.matmul->quantise(x, count, &first);
  if (levels(rounding) == 1) return;
  float rest[256];
  for (int i = 0; i < count; i++) rest[i] = x[i] - float(first.q[i]) * first.scale[i / 32];
  isa.matmul->quantise(rest, count, row + activation_blocks(columns) + block);
}
inline void round_row(const Isa& isa, const float* x, int columns, Activation* row,
                      Rounding rounding) {
  for (int b = 0; 256 * b < columns; b++)
    round_block(isa, x + 256 * b, std::min(256, columns - 256 * b), row, b, columns, rounding);
}

// Appends the addresses that a kernel takes for one token: its floats, or the blocks of each level.
// Returns the new end.
inline const void** add_token(const void** at, const float* x, Activation* row, int columns,
                              QuantType type, Rounding rounding) {
  if (reads_floats(type, rounding)) {
    *at++ = x;
    return at;
  }
  for (int l = 0; l < levels(rounding); l++) *at++ = row + l * activation_blocks(columns);
  return at;
}

// Runs a tile over tokens that were gathered with add_token. Leaves one row of 32 per token in
// `out`.
inline void run_tile(const Isa& isa, Product& product, QuantType type, Rounding rounding,
                     const void* const* tokens, int num_tokens, float* out) {
  const int rows_each = reads_floats(type, rounding) ? 1 : levels(rounding);
  product.tokens = tokens;
  product.num_tokens = num_tokens * rows_each;
  product.out = out;
  isa.matmul->product(type, kernel_precision(rounding))(product);
  if (rows_each == 1) return;
  for (int t = 0; t < num_tokens; t++)
    for (int r = 0; r < kTileRows; r++)
      out[t * kTileRows + r] = out[2 * t * kTileRows + r] + out[(2 * t + 1) * kTileRows + r];
}

// Returns the tile of a matrix that starts at row `first`; the caller sets tokens and out.
inline Product tile_product(const uint8_t* data, QuantType type, int rows, int columns, int first) {
  Product p{};
  p.row_bytes = row_bytes(type, columns);
  p.rows = data + first * p.row_bytes;
  p.num_rows = std::min(kTileRows, rows - first);
  p.num_columns = columns;
  return p;
}

// Returns the memory of a tile.
inline Bytes rows_of(const Product& tile) {
  return {tile.rows, size_t(tile.num_rows) * tile.row_bytes};
}

// Rounds x (T, columns) to activations (T, blocks).
class Quantise : public Stage {
 public:
  Quantise(const float* x, int columns, Rows rows, Rounding rounding, const Isa& isa,
           uint8_t* const* out)
      : x_(x), columns_(columns), rows_(rows), rounding_(rounding), isa_(isa), out_(out) {}
  int num_tasks(const Step& step) const override { return count_rows(rows_, step); }
  void run(const Step&, int row, int, Worker&) const override {
    round_row(isa_, x_ + size_t(row) * columns_, columns_,
              activation_row(*out_, row, columns_, rounding_), rounding_);
  }

 private:
  const float* x_;
  const int columns_;
  const Rows rows_;
  const Rounding rounding_;
  const Isa& isa_;
  uint8_t* const* out_;
};

}  // namespace sharpi
