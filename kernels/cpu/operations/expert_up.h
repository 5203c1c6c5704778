// First half of a feed-forward over experts: gate and up, fused with the activation.
#pragma once
#include <array>
#include <atomic>

#include "expert_jobs.h"
#include "experts/store/expert_feed.h"

namespace sharpi {
namespace {

constexpr int kBlockTiles = 256 / kTileRows;  // tiles whose outputs fill one activation block

constexpr std::array<float, kTileRows> filled(float value) {
  std::array<float, kTileRows> values{};
  for (float& v : values) v = value;
  return values;
}
constexpr auto kOnes = filled(1.f);

enum class Part { There, InFlight };

// Computes hidden (slots, width) = act(gate x) * up x; the thread that completes 256 of a job's
// columns rounds them for the last stage.
class GateUp : public Stage {
 public:
  GateUp(const ExpertShape& shape, int batch, Part part)
      : s_(shape), batch_(batch), part_(part), tiles_(count_tiles(shape.width())) {}
  int num_tasks(const Step& step) const override {
    return s_.may_have(batch_, step) ? s_.jobs_of(step) * tasks_a_job(step) : 0;
  }
  int num_ready_tasks(const Step& step) const override {
    const Grouping g = s_.view();
    return batch_ < *g.num_batches ? (end(g) - first(g)) * tasks_a_job(step) : 0;
  }
  int num_weight_parts() const override {
    return batch_ || part_ == Part::InFlight || s_.p.feed ? 0 : tiles_;
  }
  void weights_of(int tile, std::vector<Bytes>& out) const override {
    if (s_.has_gate()) s_.weights_of(s_.p.gate, tile, out);
    s_.weights_of(s_.p.up, tile, out);
  }

  void run(const Step& step, int task, int next, Worker& worker) const override {
    const Grouping g = s_.view();
    const TileRun here = rows_of(step, g, task);
    const Job job = g.jobs[here.job];
    if (part_ == Part::InFlight && !s_.p.feed->wait(s_.p.layer, job.expert)) return;
    const uint8_t* after = next_rows(step, g, task, next);
    if (s_.has_gate())
      multiply(g, job, s_.p.gate, here, tile(s_.p.up, job.expert, here.first).rows, worker, 0);
    multiply(g, job, s_.p.up, here, after, worker, 1);
    for (int i = 0; i < here.num_tiles; i++)
      activate(g, job, (here.first + i) * kTileRows, at(worker, 0, i, job), at(worker, 1, i, job));
    if (!s_.floats_down()) round_when_complete(g, here, job);
  }

 private:
  // A task: adjacent tiles of a job.
  struct TileRun {
    int job, first, num_tiles;
  };
  int together(const Step& step) const {
    return tiles_together(s_.count_rows(step), s_.jobs_of(step) * tiles_);
  }
  int tasks_a_job(const Step& step) const { return (tiles_ + together(step) - 1) / together(step); }
  TileRun rows_of(const Step& step, const Grouping& g, int task) const {
    const int tasks = tasks_a_job(step), jobs = end(g) - first(g);
    const int job = s_.shares_rows ? task % jobs : task / tasks;
    const int first_tile = (s_.shares_rows ? task / jobs : task % tasks) * together(step);
    return {g.order[first(g) + job], first_tile, std::min(together(step), tiles_ - first_tile)};
  }
  int first(const Grouping& g) const {
    return part_ == Part::There ? g.batches[batch_].first : g.batches[batch_].in_flight;
  }
  int end(const Grouping& g) const {
    return part_ == Part::There ? g.batches[batch_].in_flight : g.batches[batch_].remote;
  }
  static Product tile(const StackedMatrix& stacked, int expert, int tile) {
    return tile_product(stacked.matrix(expert), QuantType(stacked.type), stacked.rows,
                        stacked.columns, tile * kTileRows);
  }
  // Returns the place for the values of tile `i` of a task.
  float* at(Worker& worker, int buffer, int i, const Job& job) const {
    return worker.tiles[buffer] + size_t(i) * levels(s_.rounding()) * job.count * kTileRows;
  }
  // Returns the rows that this thread reads next, if they are known to be in memory.
  const uint8_t* next_rows(const Step& step, const Grouping& g, int task, int next) const {
    if (next < 0) return nullptr;
    const TileRun then = rows_of(step, g, next);
    if (part_ == Part::InFlight && then.job != rows_of(step, g, task).job) return nullptr;
    return tile(s_.has_gate() ? s_.p.gate : s_.p.up, g.jobs[then.job].expert, then.first).rows;
  }
  void multiply(const Grouping& g, const Job& job, const StackedMatrix& stacked,
                const TileRun& here, const uint8_t* next, Worker& worker, int buffer) const {
    const auto type = QuantType(stacked.type);
    const void** end = worker.tokens;
    for (int i = 0; i < job.count; i++) {
      const int token = g.tokens[job.first + i];
      end = add_token(end, s_.p.x + size_t(token) * stacked.columns,
                      activation_row(*s_.input, token, stacked.columns, s_.rounding()),
                      stacked.columns, type, s_.rounding());
    }
    for (int i = 0; i < here.num_tiles; i++) {
      Product product = tile(stacked, job.expert, here.first + i);
      product.next =
          i + 1 < here.num_tiles ? tile(stacked, job.expert, here.first + i + 1).rows : next;
      run_tile(s_.isa, product, type, s_.rounding(), worker.tokens, job.count,
               at(worker, buffer, i, job));
    }
  }
  void activate(const Grouping& g, const Job& job, int first, float* gate, float* up) const {
    const int rows = std::min(kTileRows, s_.width() - first);
    for (int i = 0; i < job.count; i++, gate += kTileRows, up += kTileRows) {
      const float weight = s_.p.weighs_input ? g.weights[job.first + i] : 1.f;
      finish(s_.p.up, job.expert, first, rows, weight, up);
      if (s_.has_gate()) finish(s_.p.gate, job.expert, first, rows, weight, gate);
      s_.isa.vectors->gated(Activate(s_.p.activation), s_.has_gate() ? gate : up,
                            s_.has_gate() ? up : kOnes.data(), s_.hidden_row(job.first + i) + first,
                            rows);
    }
  }
  // Computes values = weight * scale * values + bias: weighting the input is the same as weighting
  // the product.
  static void finish(const StackedMatrix& stacked, int expert, int first, int rows, float weight,
                     float* values) {
    weight *= stacked.scale(expert);
    if (weight != 1.f)
      for (int r = 0; r < rows; r++) values[r] *= weight;
    if (!stacked.bias) return;
    const float* bias = stacked.bias + size_t(expert) * stacked.rows + first;
    for (int r = 0; r < rows; r++) values[r] += bias[r];
  }
  // All tiles of a task are in one block, because the number of tiles in a block is a multiple of
  // theirs.
  void round_when_complete(const Grouping& g, const TileRun& here, const Job& job) const {
    const int block = here.first / kBlockTiles,
              tiles = std::min(kBlockTiles, tiles_ - block * kBlockTiles);
    auto& done = g.tiles_done[here.job * s_.blocks() + block];
    if (done.fetch_add(here.num_tiles, std::memory_order_acq_rel) + here.num_tiles < tiles) return;
    const int columns = std::min(256, s_.width() - block * 256);
    for (int slot = job.first; slot < job.first + job.count; slot++)
      round_block(s_.isa, s_.hidden_row(slot) + block * 256, columns,
                  activation_row(*s_.hidden_rounded, slot, s_.width(), s_.rounding()), block,
                  s_.width(), s_.rounding());
  }

  const ExpertShape s_;
  const int batch_;
  const Part part_;
  const int tiles_;
};

}  // namespace
}  // namespace sharpi
