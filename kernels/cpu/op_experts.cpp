// Feed-forward over experts: tokens grouped by expert, gate and up fused with the activation, down weighted and summed.
//
// Every token's experts are summed in the order of their ids, whatever the batch, so the bits never depend on company, nor
// on which experts were in memory. A thread owns 32 of the outputs in the last stage and walks all experts: no atomics, no
// partial sums.
#include <array>
#include <atomic>
#include <cstring>

#include "expert_jobs.h"
#include "experts/expert_feed.h"

namespace sharpi {
namespace {

constexpr int kBlockTiles = 256 / kTileRows;  // tiles whose outputs make one activation block

constexpr std::array<float, kTileRows> filled(float value) {
  std::array<float, kTileRows> values{};
  for (float& v : values) v = value;
  return values;
}
constexpr auto kOnes = filled(1.f);

enum class Part { There, Late };

// hidden (slots, width) = act(gate x) * up x; whoever completes 256 of a job's columns rounds them for the last stage.
class GateUp : public Stage {
 public:
  GateUp(const ExpertShape& shape, int batch, Part part)
      : s_(shape), batch_(batch), part_(part), tiles_(count_tiles(shape.width())) {}
  int num_tasks(const Step& step) const override { return s_.may_have(batch_, step) ? s_.jobs_of(step) * tiles_ : 0; }
  int num_ready_tasks(const Step&) const override {
    const Grouping g = s_.view();
    return batch_ < *g.num_batches ? (end(g) - first(g)) * tiles_ : 0;
  }

  void run(const Step&, int task, int next, Worker& worker) const override {
    const Grouping g = s_.view();
    const int job_index = g.order[first(g) + task / tiles_];
    const Job job = g.jobs[job_index];
    if (part_ == Part::Late && !s_.p.feed->wait(s_.p.layer, job.expert)) return;
    const int row = task % tiles_ * kTileRows;
    Product up = tile(s_.p.up, job.expert, row);
    if (s_.has_gate()) {
      Product gate = tile(s_.p.gate, job.expert, row);
      gate.next = up.rows;
      multiply(g, job, s_.p.gate, gate, worker, 0);
    }
    up.next = next_rows(g, task, next);
    multiply(g, job, s_.p.up, up, worker, 1);
    activate(g, job, row, up.num_rows, worker);
    if (!s_.floats_down()) round_when_complete(g, job_index, job, row / 256);
  }

 private:
  int first(const Grouping& g) const { return part_ == Part::There ? g.batches[batch_].first : g.batches[batch_].late; }
  int end(const Grouping& g) const { return part_ == Part::There ? g.batches[batch_].late : g.batches[batch_].end; }
  static Product tile(const Bank& bank, int expert, int row) {
    return tile_product(bank.matrix(expert), QuantType(bank.type), bank.rows, bank.columns, row);
  }
  // What this thread reads next, where that is known to be in memory.
  const uint8_t* next_rows(const Grouping& g, int task, int next) const {
    const bool is_there = next >= 0 && (part_ == Part::There || next / tiles_ == task / tiles_);
    if (!is_there) return nullptr;
    const Bank& first_read = s_.has_gate() ? s_.p.gate : s_.p.up;
    return tile(first_read, g.jobs[g.order[first(g) + next / tiles_]].expert, next % tiles_ * kTileRows).rows;
  }
  void multiply(const Grouping& g, const Job& job, const Bank& bank, Product& product, Worker& worker,
                int buffer) const {
    const auto type = QuantType(bank.type);
    const void** at = worker.tokens;
    for (int i = 0; i < job.count; i++) {
      const int token = g.tokens[job.first + i];
      at = add_token(at, s_.p.x + size_t(token) * bank.columns,
                     activation_row(*s_.input, token, bank.columns, s_.rounding()), bank.columns, type, s_.rounding());
    }
    run_tile(s_.isa, product, type, s_.rounding(), worker.tokens, job.count, worker.tiles[buffer]);
  }
  void activate(const Grouping& g, const Job& job, int first, int rows, Worker& worker) const {
    for (int i = 0; i < job.count; i++) {
      float *gate = worker.tiles[0] + i * kTileRows, *up = worker.tiles[1] + i * kTileRows;
      const float weight = s_.p.weighs_input ? g.weights[job.first + i] : 1.f;
      finish(s_.p.up, job.expert, first, rows, weight, up);
      if (s_.has_gate()) finish(s_.p.gate, job.expert, first, rows, weight, gate);
      s_.isa.vectors->gated(Activate(s_.p.activation), s_.has_gate() ? gate : up, s_.has_gate() ? up : kOnes.data(),
                            s_.hidden_row(job.first + i) + first, rows);
    }
  }
  // values = weight * scale * values + bias: a weight of the input is one of the product
  static void finish(const Bank& bank, int expert, int first, int rows, float weight, float* values) {
    weight *= bank.scale(expert);
    if (weight != 1.f)
      for (int r = 0; r < rows; r++) values[r] *= weight;
    if (!bank.bias) return;
    const float* bias = bank.bias + size_t(expert) * bank.rows + first;
    for (int r = 0; r < rows; r++) values[r] += bias[r];
  }
  void round_when_complete(const Grouping& g, int job_index, const Job& job, int block) const {
    const int tiles = std::min(kBlockTiles, tiles_ - block * kBlockTiles);
    auto& done = g.tiles_done[job_index * s_.blocks() + block];
    if (done.fetch_add(1, std::memory_order_acq_rel) + 1 < tiles) return;
    const int columns = std::min(256, s_.width() - block * 256);
    for (int slot = job.first; slot < job.first + job.count; slot++)
      round_block(s_.isa, s_.hidden_row(slot) + block * 256, columns,
                  activation_row(*s_.hidden_rounded, slot, s_.width(), s_.rounding()), block, s_.width(), s_.rounding());
  }

  const ExpertShape s_;
  const int batch_;
  const Part part_;
  const int tiles_;
};

// out (T, 32 rows) = residual + sum over jobs of weight * scale * down hidden; sums go from batch to batch.
class Down : public Stage {
 public:
  Down(const ExpertShape& shape, int batch) : s_(shape), batch_(batch) {}
  int num_tasks(const Step& step) const override { return s_.may_have(batch_, step) ? count_tiles(s_.p.down.rows) : 0; }
  int num_ready_tasks(const Step&) const override {
    return batch_ < *s_.view().num_batches ? count_tiles(s_.p.down.rows) : 0;
  }

  void run(const Step& step, int task, int next, Worker& worker) const override {
    const Grouping g = s_.view();
    const JobBatch batch = g.batches[batch_];
    const int num_tokens = s_.count_rows(step), first = task * kTileRows;
    const bool is_last = batch_ + 1 == *g.num_batches;
    float* sums = worker.tiles[1];
    begin(task, num_tokens, sums);
    for (int j = batch.first; j < batch.end; j++) {
      Product product = tile(g.jobs[j].expert, first);
      if (j + 1 < batch.end) product.next = tile(g.jobs[j + 1].expert, first).rows;
      else if (next >= 0) product.next = tile(g.jobs[batch.first].expert, next * kTileRows).rows;
      add_job(g, g.jobs[j], first, product, sums, worker);
    }
    if (is_last) write(first, num_tokens, sums);
    else memcpy(kept(task, num_tokens), sums, sizeof(float) * kTileRows * num_tokens);
  }

 private:
  Product tile(int expert, int first) const {
    const Bank& bank = s_.p.down;
    return tile_product(bank.matrix(expert), QuantType(bank.type), bank.rows, bank.columns, first);
  }
  // The sums of a task between two batches, (T, 32).
  float* kept(int task, int num_tokens) const {
    return reinterpret_cast<float*>(*s_.sums) + size_t(task) * kTileRows * num_tokens;
  }
  void begin(int task, int num_tokens, float* sums) const {
    const size_t bytes = sizeof(float) * kTileRows * num_tokens;
    if (batch_) memcpy(sums, kept(task, num_tokens), bytes);
    else memset(sums, 0, bytes);
  }
  void add_job(const Grouping& g, const Job& job, int first, Product& product, float* sums, Worker& worker) const {
    const auto type = QuantType(s_.p.down.type);
    const void** at = worker.tokens;
    for (int slot = job.first; slot < job.first + job.count; slot++)
      at = add_token(at, s_.hidden_row(slot), activation_row(*s_.hidden_rounded, slot, s_.width(), s_.rounding()),
                     s_.width(), type, s_.rounding());
    run_tile(s_.isa, product, type, s_.rounding(), worker.tokens, job.count, worker.tiles[0]);
    const float* bias = s_.p.down.bias ? s_.p.down.bias + size_t(job.expert) * s_.p.down.rows + first : nullptr;
    const float scale = s_.p.down.scale(job.expert);
    for (int i = 0; i < job.count; i++) {
      float *y = sums + g.tokens[job.first + i] * kTileRows, *value = worker.tiles[0] + i * kTileRows;
      const float weight = s_.p.weighs_input ? 1.f : g.weights[job.first + i];
      for (int r = 0; r < product.num_rows; r++) y[r] += weight * (scale * value[r] + (bias ? bias[r] : 0.f));
    }
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
  const int batch_;
};

// A batch's experts may leave; with the last batch those of the whole layer.
class Release : public Stage {
 public:
  Release(const ExpertShape& shape, int batch) : s_(shape), batch_(batch) {}
  int num_tasks(const Step& step) const override { return batch_ == 0 || s_.may_have(batch_, step) ? 1 : 0; }
  void run(const Step&, int, int, Worker&) const override {
    const Grouping g = s_.view();
    const bool is_last = batch_ + 1 == std::max(1, *g.num_batches);
    if (is_last) return s_.p.feed->release(s_.p.layer);
    if (batch_ >= *g.num_batches) return;
    const JobBatch batch = g.batches[batch_];
    for (int j = batch.first; j < batch.end; j++) s_.p.feed->release(s_.p.layer, g.jobs[j].expert);
  }

 private:
  const ExpertShape s_;
  const int batch_;
};

}  // namespace

void add_experts(Program& program, const ExpertsParams& p) {
  const ExpertShape shape(program, p);
  program.add<Group>(shape);
  if (!shape.floats_in())
    program.add<Quantise>(p.x, p.up.columns, Rows(p.rows), shape.rounding(), program.isa, shape.input);
  for (int batch = 0; batch < shape.max_batches; batch++) {
    program.add<GateUp>(shape, batch, Part::There);
    if (p.feed) program.add<GateUp>(shape, batch, Part::Late);
    program.add<Down>(shape, batch);
    if (p.feed) program.add<Release>(shape, batch);
  }
}

}  // namespace sharpi
