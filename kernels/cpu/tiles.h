// What the matrix operations share: tiles of 32 rows, and rows of rounded activations.
#pragma once
#include <algorithm>

#include "isa.h"
#include "matmul.h"
#include "stage.h"

namespace sharpi {

inline int count_tiles(int rows) { return (rows + kTileRows - 1) / kTileRows; }
inline size_t row_bytes(QuantType type, int columns) {
  return size_t(columns) / block_values(type) * block_bytes(type);
}

inline int activation_blocks(int columns) { return (columns + 255) / 256; }
inline size_t activation_bytes(size_t rows, int columns) {
  return rows * activation_blocks(columns) * sizeof(Activation);
}
inline Activation* activation_row(uint8_t* base, int row, int columns) {
  return reinterpret_cast<Activation*>(base) + size_t(row) * activation_blocks(columns);
}

// The tile of a matrix that starts at row `first`; tokens and out are left to the caller.
inline Product tile_product(const uint8_t* data, QuantType type, int rows, int columns, int first) {
  Product p{};
  p.row_bytes = row_bytes(type, columns);
  p.rows = data + first * p.row_bytes;
  p.num_rows = std::min(kTileRows, rows - first);
  p.num_columns = columns;
  return p;
}

// x (T, columns) -> activations (T, blocks)
class Quantise : public Stage {
 public:
  Quantise(const float* x, int columns, Rows rows, const Isa& isa, uint8_t* const* out)
      : x_(x), columns_(columns), rows_(rows), isa_(isa), out_(out) {}
  int num_tasks(const Step& step) const override { return count_rows(rows_, step); }
  void run(const Step&, int row, int, Worker&) const override {
    isa_.matmul->quantise(x_ + size_t(row) * columns_, columns_, activation_row(*out_, row, columns_));
  }

 private:
  const float* x_;
  const int columns_;
  const Rows rows_;
  const Isa& isa_;
  uint8_t* const* out_;
};

}  // namespace sharpi
