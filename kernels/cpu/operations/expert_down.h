// Second half of a feed-forward over experts: down, weighted and summed.
#pragma once
#include <cstring>

#include "expert_jobs.h"
#include "experts/store/expert_feed.h"

namespace sharpi {
namespace {

// Computes out (T, 32 rows) = residual + sum over jobs of weight * scale * down hidden; sums are
// carried from batch to batch.
class Down : public Stage {
 public:
  Down(const ExpertShape& shape, int batch)
      : s_(shape), batch_(batch), tiles_(count_tiles(shape.p.down.rows)) {}
  int num_tasks(const Step& step) const override {
    return s_.may_have(batch_, step) ? (tiles_ + together(step) - 1) / together(step) : 0;
  }
  int num_ready_tasks(const Step& step) const override {
    return batch_ < *s_.view().num_batches ? num_tasks(step) : 0;
  }
  int num_weight_parts() const override { return batch_ || s_.p.feed ? 0 : tiles_; }
  void weights_of(int tile, std::vector<Bytes>& out) const override {
    s_.weights_of(s_.p.down, tile, out);
  }

  void run(const Step& step, int task, int next, Worker& worker) const override {
    const Grouping g = s_.view();
    const JobBatch batch = g.batches[batch_];
    const int num_tokens = s_.count_rows(step), first = task * together(step);
    const int num_tiles = std::min(together(step), tiles_ - first);
    const auto sums = [&](int i) { return worker.tiles[1] + size_t(i) * num_tokens * kTileRows; };
    for (int i = 0; i < num_tiles; i++) begin(first + i, num_tokens, sums(i));
    for (int j = batch.first; j < batch.end; j++)
      for (int i = 0; i < num_tiles; i++) {
        Product product = tile(g.jobs[j].expert, first + i);
        if (i + 1 < num_tiles) product.next = tile(g.jobs[j].expert, first + i + 1).rows;
        else if (j + 1 < batch.end) product.next = first_rows(g.jobs[j + 1], first);
        else if (next >= 0) product.next = first_rows(g.jobs[batch.first], next * together(step));
        add_job(g, g.jobs[j], (first + i) * kTileRows, product, sums(i), worker);
      }
    for (int i = 0; i < num_tiles; i++) end(*g.num_batches, first + i, num_tokens, sums(i));
  }

 private:
  int together(const Step& step) const { return tiles_together(s_.count_rows(step), tiles_); }
  Product tile(int expert, int tile) const {
    const StackedMatrix& stacked = s_.p.down;
    return tile_product(stacked.matrix(expert), QuantType(stacked.type), stacked.rows,
                        stacked.columns, tile * kTileRows);
  }
  // Returns the memory that a thread reads first for a job; none if another rank computes it.
  const uint8_t* first_rows(const Job& job, int first) const {
    return job.is_remote() ? nullptr : tile(job.expert, first).rows;
  }
  // Returns a tile's sums between two batches, (T, 32).
  float* kept(int tile, int num_tokens) const {
    return reinterpret_cast<float*>(*s_.sums) + size_t(tile) * kTileRows * num_tokens;
  }
  void begin(int tile, int num_tokens, float* sums) const {
    const size_t bytes = sizeof(float) * kTileRows * num_tokens;
    if (batch_) memcpy(sums, kept(tile, num_tokens), bytes);
    else memset(sums, 0, bytes);
  }
  void end(int num_batches, int tile, int num_tokens, const float* sums) const {
    if (batch_ + 1 == num_batches) write(tile * kTileRows, num_tokens, sums);
    else memcpy(kept(tile, num_tokens), sums, sizeof(float) * kTileRows * num_tokens);
  }
  // The values of another rank already include an expert's scale and bias.
  void add_job(const Grouping& g, const Job& job, int first, Product& product, float* sums,
               Worker& worker) const {
    if (job.is_remote()) copy_reply(job, first, product.num_rows, worker.tiles[0]);
    else multiply(job, product, worker);
    const float* bias = s_.p.down.bias && !job.is_remote()
                            ? s_.p.down.bias + size_t(job.expert) * s_.p.down.rows + first
                            : nullptr;
    const float scale = job.is_remote() ? 1.f : s_.p.down.scale(job.expert);
    for (int i = 0; i < job.count; i++) {
      float *y = sums + g.tokens[job.first + i] * kTileRows,
            *value = worker.tiles[0] + i * kTileRows;
      const float weight = s_.p.weighs_input ? 1.f : g.weights[job.first + i];
      for (int r = 0; r < product.num_rows; r++)
        y[r] += weight * (scale * value[r] + (bias ? bias[r] : 0.f));
    }
  }
  void copy_reply(const Job& job, int first, int rows, float* values) const {
    for (int i = 0; i < job.count; i++, values += kTileRows)
      memcpy(values, s_.p.feed->remote()->values(job.rank, job.item + i) + first,
             sizeof(float) * rows);
  }
  void multiply(const Job& job, Product& product, Worker& worker) const {
    const auto type = QuantType(s_.p.down.type);
    const void** at = worker.tokens;
    for (int slot = job.first; slot < job.first + job.count; slot++)
      at = add_token(at, s_.hidden_row(slot),
                     activation_row(*s_.hidden_rounded, slot, s_.width(), s_.rounding()),
                     s_.width(), type, s_.rounding());
    run_tile(s_.isa, product, type, s_.rounding(), worker.tokens, job.count, worker.tiles[0]);
  }
  void write(int first, int num_tokens, const float* sums) const {
    const int width = s_.p.down.rows, rows = std::min(kTileRows, width - first);
    for (int t = 0; t < num_tokens; t++) {
      const size_t at = size_t(t) * width + first;
      const float* residual = s_.p.residual ? s_.p.residual + at : nullptr;
      s_.isa.vectors->add_scaled(residual, sums + t * kTileRows, s_.p.scale, s_.p.out + at, rows);
    }
  }

  const ExpertShape s_;
  const int batch_, tiles_;
};

}  // namespace
}  // namespace sharpi
