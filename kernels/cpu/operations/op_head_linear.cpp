// Multiplies each head's values with a matrix of its own: queries and outputs of latent attention.
#include "matmul/tiles.h"
#include "ops.h"
#include "runtime/program.h"

namespace sharpi {
namespace {

// Rounds x (T, heads, columns) to activations (T, heads, blocks).
class QuantiseHeads : public Stage {
 public:
  QuantiseHeads(const HeadLinearParams& params, const Isa& isa, uint8_t* const* out)
      : p_(params), isa_(isa), out_(out) {}
  int num_tasks(const Step& step) const override { return step.num_tokens; }
  void run(const Step&, int token, int, Worker&) const override {
    const int columns = p_.stacked.columns;
    const auto rounding = Rounding(p_.precision);
    for (int row = token * p_.num_heads; row < (token + 1) * p_.num_heads; row++)
      round_row(isa_, p_.x + size_t(row) * columns, columns,
                activation_row(*out_, row, columns, rounding), rounding);
  }

 private:
  const HeadLinearParams p_;
  const Isa& isa_;
  uint8_t* const* out_;
};

// Multiplies all tokens; one task per head and tile of its rows.
class HeadLinear : public Stage {
 public:
  HeadLinear(const HeadLinearParams& params, const Isa& isa, uint8_t* const* activations)
      : p_(params),
        isa_(isa),
        activations_(activations),
        tiles_(count_tiles(params.stacked.rows)) {}
  int num_tasks(const Step&) const override { return p_.num_heads * tiles_; }
  int num_weight_parts() const override { return p_.num_heads * tiles_; }
  void weights_of(int part, std::vector<Bytes>& out) const override {
    out.push_back(rows_of(tile(part)));
  }

  void run(const Step& step, int task, int next, Worker& worker) const override {
    const StackedMatrix& stacked = p_.stacked;
    const auto type = QuantType(stacked.type);
    const auto rounding = Rounding(p_.precision);
    const int head = task / tiles_;
    const void** at = worker.tokens;
    for (int t = 0; t < step.num_tokens; t++) {
      const int row = t * p_.num_heads + head;
      at = add_token(at, p_.x + size_t(row) * stacked.columns,
                     activation_row(*activations_, row, stacked.columns, rounding), stacked.columns,
                     type, rounding);
    }
    Product product = tile(task);
    product.next = next < 0 ? nullptr : tile(next).rows;
    run_tile(isa_, product, type, rounding, worker.tokens, step.num_tokens, worker.tiles[0]);
    for (int t = 0; t < step.num_tokens; t++) {
      float* out =
          p_.out + (size_t(t) * p_.num_heads + head) * stacked.rows + task % tiles_ * kTileRows;
      const float* values = worker.tiles[0] + t * kTileRows;
      for (int r = 0; r < product.num_rows; r++) out[r] = stacked.scale(head) * values[r];
    }
  }

 private:
  Product tile(int task) const {
    const StackedMatrix& stacked = p_.stacked;
    return tile_product(stacked.matrix(task / tiles_), QuantType(stacked.type), stacked.rows,
                        stacked.columns, task % tiles_ * kTileRows);
  }

  const HeadLinearParams p_;
  const Isa& isa_;
  uint8_t* const* activations_;
  const int tiles_;
};

}  // namespace

void add_head_linear(Program& program, const HeadLinearParams& p) {
  const auto rounding = Rounding(p.precision);
  uint8_t* const* activations = program.request(
      Scratch::Activations,
      activation_bytes(size_t(program.max_tokens) * p.num_heads, p.stacked.columns, rounding));
  if (!reads_floats(QuantType(p.stacked.type), rounding))
    program.add<QuantiseHeads>(p, program.isa, activations);
  program.add<HeadLinear>(p, program.isa, activations);
}

}  // namespace sharpi
