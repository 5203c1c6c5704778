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

// Few tokens are a matter of memory, which is slower where it is read in short pieces: a task then takes up to four
// neighbouring tiles of a matrix, as long as there are tasks for everybody.
constexpr int kTilesTogether = 4, kFewestTasks = 32;
int tiles_together(int num_tokens, int num_tiles) {
  int together = num_tokens <= kFewTokens ? kTilesTogether : 1;
  while (together > 1 && num_tiles < kFewestTasks * together) together /= 2;
  return together;
}

enum class Part { There, Late };

// hidden (slots, width) = act(gate x) * up x; whoever completes 256 of a job's columns rounds them for the last stage.
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

  void run(const Step& step, int task, int next, Worker& worker) const override {
    const Grouping g = s_.view();
    const Rows32 here = rows_of(step, g, task);
    const Job job = g.jobs[here.job];
    if (part_ == Part::Late && !s_.p.feed->wait(s_.p.layer, job.expert)) return;
    const uint8_t* after = next_rows(step, g, task, next);
    if (s_.has_gate()) multiply(g, job, s_.p.gate, here, tile(s_.p.up, job.expert, here.first).rows, worker, 0);
    multiply(g, job, s_.p.up, here, after, worker, 1);
    for (int i = 0; i < here.num_tiles; i++)
      activate(g, job, (here.first + i) * kTileRows, at(worker, 0, i, job), at(worker, 1, i, job));
    if (!s_.floats_down()) round_when_complete(g, here, job);
  }

 private:
  // What a task computes: neighbouring tiles of a job.
  struct Rows32 {
    int job, first, num_tiles;
  };
  int together(const Step& step) const { return tiles_together(s_.count_rows(step), s_.jobs_of(step) * tiles_); }
  int tasks_a_job(const Step& step) const { return (tiles_ + together(step) - 1) / together(step); }
  Rows32 rows_of(const Step& step, const Grouping& g, int task) const {
    const int tasks = tasks_a_job(step), first_tile = task % tasks * together(step);
    return {g.order[first(g) + task / tasks], first_tile, std::min(together(step), tiles_ - first_tile)};
  }
  int first(const Grouping& g) const { return part_ == Part::There ? g.batches[batch_].first : g.batches[batch_].late; }
  int end(const Grouping& g) const { return part_ == Part::There ? g.batches[batch_].late : g.batches[batch_].end; }
  static Product tile(const Bank& bank, int expert, int tile) {
    return tile_product(bank.matrix(expert), QuantType(bank.type), bank.rows, bank.columns, tile * kTileRows);
  }
  // Where tile `i` of a task leaves its values.
  float* at(Worker& worker, int buffer, int i, const Job& job) const {
    return worker.tiles[buffer] + size_t(i) * levels(s_.rounding()) * job.count * kTileRows;
  }
  // What this thread reads next, where that is known to be in memory.
  const uint8_t* next_rows(const Step& step, const Grouping& g, int task, int next) const {
    const int tasks = tasks_a_job(step);
    const bool is_there = next >= 0 && (part_ == Part::There || next / tasks == task / tasks);
    if (!is_there) return nullptr;
    const Rows32 then = rows_of(step, g, next);
    return tile(s_.has_gate() ? s_.p.gate : s_.p.up, g.jobs[then.job].expert, then.first).rows;
  }
  void multiply(const Grouping& g, const Job& job, const Bank& bank, const Rows32& here, const uint8_t* next,
                Worker& worker, int buffer) const {
    const auto type = QuantType(bank.type);
    const void** end = worker.tokens;
    for (int i = 0; i < job.count; i++) {
      const int token = g.tokens[job.first + i];
      end = add_token(end, s_.p.x + size_t(token) * bank.columns,
                      activation_row(*s_.input, token, bank.columns, s_.rounding()), bank.columns, type, s_.rounding());
    }
    for (int i = 0; i < here.num_tiles; i++) {
      Product product = tile(bank, job.expert, here.first + i);
      product.next = i + 1 < here.num_tiles ? tile(bank, job.expert, here.first + i + 1).rows : next;
      run_tile(s_.isa, product, type, s_.rounding(), worker.tokens, job.count, at(worker, buffer, i, job));
    }
  }
  void activate(const Grouping& g, const Job& job, int first, float* gate, float* up) const {
    const int rows = std::min(kTileRows, s_.width() - first);
    for (int i = 0; i < job.count; i++, gate += kTileRows, up += kTileRows) {
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
  // Tiles of one task are in one block: they are its beginning, or its second half.
  void round_when_complete(const Grouping& g, const Rows32& here, const Job& job) const {
    const int block = here.first / kBlockTiles, tiles = std::min(kBlockTiles, tiles_ - block * kBlockTiles);
    auto& done = g.tiles_done[here.job * s_.blocks() + block];
    if (done.fetch_add(here.num_tiles, std::memory_order_acq_rel) + here.num_tiles < tiles) return;
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
  Down(const ExpertShape& shape, int batch) : s_(shape), batch_(batch), tiles_(count_tiles(shape.p.down.rows)) {}
  int num_tasks(const Step& step) const override {
    return s_.may_have(batch_, step) ? (tiles_ + together(step) - 1) / together(step) : 0;
  }
  int num_ready_tasks(const Step& step) const override { return batch_ < *s_.view().num_batches ? num_tasks(step) : 0; }

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
        else if (j + 1 < batch.end) product.next = tile(g.jobs[j + 1].expert, first).rows;
        else if (next >= 0) product.next = tile(g.jobs[batch.first].expert, next * together(step)).rows;
        add_job(g, g.jobs[j], (first + i) * kTileRows, product, sums(i), worker);
      }
    for (int i = 0; i < num_tiles; i++) end(*g.num_batches, first + i, num_tokens, sums(i));
  }

 private:
  int together(const Step& step) const { return tiles_together(s_.count_rows(step), tiles_); }
  Product tile(int expert, int tile) const {
    const Bank& bank = s_.p.down;
    return tile_product(bank.matrix(expert), QuantType(bank.type), bank.rows, bank.columns, tile * kTileRows);
  }
  // The sums of a tile between two batches, (T, 32).
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
  const int batch_, tiles_;
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
