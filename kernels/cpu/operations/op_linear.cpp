// Matrices times the rows of the step: activations are rounded once, then tiles of 32 rows are
// shared among the threads.
#include "matmul/tiles.h"
#include "ops.h"
#include "runtime/program.h"

namespace sharpi {
namespace {

class Linear : public Stage {
 public:
  Linear(const LinearParams& params, const Isa& isa, uint8_t* const* activations)
      : p_(params), isa_(isa), activations_(activations) {
    for (int m = 0; m < p_.num_matrices; m++) tiles_ += count_tiles(p_.matrices[m].rows);
  }
  int num_tasks(const Step& step) const override {
    return count_rows(Rows(p_.rows), step) ? tiles_ : 0;
  }

  Bytes reads_first(const Step&, int task) const override {
    const Tile tile = find(task);
    const Matrix& m = *tile.matrix;
    return {address(tile), (m.rows - tile.first) * row_bytes(QuantType(m.type), m.columns)};
  }

  int num_weight_parts() const override { return tiles_; }
  void weights_of(int tile, std::vector<Bytes>& out) const override {
    const Tile part = find(tile);
    const Matrix& m = *part.matrix;
    const size_t rows = std::min(kTileRows, m.rows - part.first);
    out.push_back({address(part), rows * row_bytes(QuantType(m.type), m.columns)});
  }

  void run(const Step& step, int task, int next, Worker& worker) const override {
    const Tile tile = find(task);
    const Matrix& m = *tile.matrix;
    const int num_rows = count_rows(Rows(p_.rows), step);
    const auto type = QuantType(m.type);
    const auto rounding = Rounding(p_.precision);
    const void** at = worker.tokens;
    for (int t = 0; t < num_rows; t++)
      at = add_token(at, p_.x + size_t(t) * m.columns,
                     activation_row(*activations_, t, m.columns, rounding), m.columns, type,
                     rounding);
    Product product = tile_product(m.data, type, m.rows, m.columns, tile.first);
    product.next = next < 0 ? nullptr : address(find(next));
    run_tile(isa_, product, type, rounding, worker.tokens, num_rows, worker.tiles[0]);
    finish(m, tile.first, product.num_rows, num_rows, worker.tiles[0]);
  }

 private:
  struct Tile {
    const Matrix* matrix;
    int first;  // row
  };
  Tile find(int task) const {
    const Matrix* m = p_.matrices;
    for (int n; task >= (n = count_tiles(m->rows)); m++) task -= n;
    return {m, task * kTileRows};
  }
  static const uint8_t* address(const Tile& tile) {
    return tile.matrix->data +
           tile.first * row_bytes(QuantType(tile.matrix->type), tile.matrix->columns);
  }
  static void finish(const Matrix& m, int first, int rows, int num_tokens, const float* values) {
    for (int t = 0; t < num_tokens; t++, values += kTileRows) {
      const size_t at = size_t(t) * m.rows + first;
      for (int r = 0; r < rows; r++) {
        const float sum = m.weight_scale * values[r] + (m.bias ? m.bias[first + r] : 0.f);
        m.out[at + r] = (m.residual ? m.residual[at + r] : 0.f) + m.scale * sum;
      }
    }
  }

  const LinearParams p_;
  const Isa& isa_;
  uint8_t* const* activations_;
  int tiles_ = 0;
};

bool needs_rounding(const LinearParams& p) {
  for (int m = 0; m < p.num_matrices; m++)
    if (!reads_floats(QuantType(p.matrices[m].type), Rounding(p.precision))) return true;
  return false;
}

}  // namespace

void add_linear(Program& program, const LinearParams& p) {
  const Rows rows = Rows(p.rows);
  const int columns = p.matrices[0].columns;
  const auto rounding = Rounding(p.precision);
  uint8_t* const* activations = program.request(
      Scratch::Activations, activation_bytes(program.max_rows(rows), columns, rounding));
  if (needs_rounding(p))
    program.add<Quantise>(p.x, columns, rows, rounding, program.isa, activations);
  program.add<Linear>(p, program.isa, activations);
}

}  // namespace sharpi
