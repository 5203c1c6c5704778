// Feed-forward over experts: tokens grouped by expert, gate and up fused with the activation, down weighted and summed.
//
// Every token's experts are summed in the order of their ids, whatever the batch, so the bits never depend on company.
// A thread owns 32 of the outputs in the last stage and walks all experts: no atomics, no partial sums.
#include <atomic>
#include <cstring>

#include "ops.h"
#include "program.h"
#include "tiles.h"

namespace sharpi {
namespace {

constexpr int kBlockTiles = 256 / kTileRows;  // tiles whose outputs make one activation block

// An expert with the tokens that chose it; its hidden rows are slots [first, first + count).
struct Job {
  int32_t expert, first, count;
};

// Views into the scratch that the grouping writes and the other stages read.
struct Grouping {
  int32_t* num_jobs;
  Job* jobs;                          // (max_jobs)
  int32_t* tokens;                    // (slots) token of each slot
  float* weights;                     // (slots)
  std::atomic<int32_t>* tiles_done;   // (max_jobs, blocks of the hidden width)
};

struct Shape {
  const ExpertsParams p;
  const Isa& isa;
  int max_jobs, slots;
  uint8_t *const *input, *const *hidden, *const *hidden_rounded, *const *grouping;

  int width() const { return p.gate.rows; }
  int blocks() const { return activation_blocks(width()); }
  int jobs_of(int num_tokens) const { return std::min(p.num_experts, num_tokens * p.k); }
  Rounding rounding() const { return Rounding(p.precision); }
  bool floats_in() const { return takes_floats(QuantType(p.gate.type), rounding()) && takes_floats(QuantType(p.up.type), rounding()); }
  bool floats_down() const { return takes_floats(QuantType(p.down.type), rounding()); }
  float* hidden_row(int slot) const { return reinterpret_cast<float*>(*hidden) + size_t(slot) * width(); }

  size_t grouping_bytes() const {
    return 64 + sizeof(Job) * max_jobs + 8 * size_t(slots) + 4 * size_t(max_jobs) * blocks();
  }
  Grouping view() const {
    uint8_t* at = *grouping;
    Grouping g;
    g.num_jobs = reinterpret_cast<int32_t*>(at);
    g.jobs = reinterpret_cast<Job*>(at += 64);
    g.tokens = reinterpret_cast<int32_t*>(at += sizeof(Job) * max_jobs);
    g.weights = reinterpret_cast<float*>(at += 4 * size_t(slots));
    g.tiles_done = reinterpret_cast<std::atomic<int32_t>*>(at += 4 * size_t(slots));
    return g;
  }
};

// Sorts the step's routes by expert: one job an expert in use, its tokens in order.
class Group : public Stage {
 public:
  explicit Group(const Shape& shape) : s_(shape) {}
  int num_tasks(const Step& step) const override { return count_rows(Rows(s_.p.rows), step) ? 1 : 0; }

  void run(const Step& step, int, int, Worker&) const override {
    const int routes = count_rows(Rows(s_.p.rows), step) * s_.p.k;
    thread_local std::vector<int32_t> next;
    next.assign(s_.p.num_experts + 1, 0);
    for (int i = 0; i < routes; i++) next[expert(i) + 1]++;
    Grouping g = s_.view();
    *g.num_jobs = 0;
    for (int e = 0; e < s_.p.num_experts; e++) {
      if (next[e + 1]) g.jobs[(*g.num_jobs)++] = {e, next[e], next[e + 1]};
      next[e + 1] += next[e];
    }
    for (int i = 0; i < routes; i++) {
      const int slot = next[expert(i)]++;
      g.tokens[slot] = i / s_.p.k;
      g.weights[slot] = s_.p.weights ? s_.p.weights[i] : 1.f;
    }
    for (int i = 0; i < *g.num_jobs * s_.blocks(); i++) g.tiles_done[i].store(0, std::memory_order_relaxed);
  }

 private:
  int expert(int route) const { return s_.p.ids ? s_.p.ids[route] : 0; }
  const Shape s_;
};

// hidden (slots, width) = act(gate x) * up x; whoever completes 256 of a job's columns rounds them for the last stage.
class GateUp : public Stage {
 public:
  explicit GateUp(const Shape& shape) : s_(shape), tiles_(count_tiles(shape.width())) {}
  int num_tasks(const Step& step) const override {
    return s_.jobs_of(count_rows(Rows(s_.p.rows), step)) * tiles_;
  }

  void run(const Step&, int task, int next, Worker& worker) const override {
    const Grouping g = s_.view();
    if (task / tiles_ >= *g.num_jobs) return;
    const Job job = g.jobs[task / tiles_];
    const int first = task % tiles_ * kTileRows;
    Product gate = tile(s_.p.gate, job.expert, first), up = tile(s_.p.up, job.expert, first);
    gate.next = up.rows;
    up.next = next < 0 || next / tiles_ >= *g.num_jobs
                  ? nullptr
                  : tile(s_.p.gate, g.jobs[next / tiles_].expert, next % tiles_ * kTileRows).rows;
    multiply(g, job, s_.p.gate, gate, worker, 0);
    multiply(g, job, s_.p.up, up, worker, 1);
    activate(job, first, gate.num_rows, worker);
    if (!s_.floats_down()) round_when_complete(g, task / tiles_, job, first / 256);
  }

 private:
  static Product tile(const Bank& bank, int expert, int first) {
    return tile_product(bank.data[expert], QuantType(bank.type), bank.rows, bank.columns, first);
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
  void activate(const Job& job, int first, int rows, Worker& worker) const {
    for (int i = 0; i < job.count; i++) {
      float *gate = worker.tiles[0] + i * kTileRows, *up = worker.tiles[1] + i * kTileRows;
      add_bias(s_.p.gate, job.expert, first, rows, gate);
      add_bias(s_.p.up, job.expert, first, rows, up);
      s_.isa.vectors->gated(Activate(s_.p.activation), gate, up, s_.hidden_row(job.first + i) + first, rows);
    }
  }
  static void add_bias(const Bank& bank, int expert, int first, int rows, float* values) {
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

  const Shape s_;
  const int tiles_;
};

// out (T, 32 rows) = residual + sum over jobs of weight * scale * down hidden
class Down : public Stage {
 public:
  explicit Down(const Shape& shape) : s_(shape) {}
  int num_tasks(const Step& step) const override {
    return count_rows(Rows(s_.p.rows), step) ? count_tiles(s_.p.down.rows) : 0;
  }

  void run(const Step& step, int task, int next, Worker& worker) const override {
    const Grouping g = s_.view();
    const int num_tokens = count_rows(Rows(s_.p.rows), step), first = task * kTileRows;
    float* sums = worker.tiles[1];
    memset(sums, 0, sizeof(float) * kTileRows * num_tokens);
    for (int j = 0; j < *g.num_jobs; j++) {
      Product product = tile(g.jobs[j].expert, first);
      if (j + 1 < *g.num_jobs) product.next = tile(g.jobs[j + 1].expert, first).rows;
      else if (next >= 0) product.next = tile(g.jobs[0].expert, next * kTileRows).rows;
      add_job(g, g.jobs[j], first, product, sums, worker);
    }
    write(first, num_tokens, sums);
  }

 private:
  Product tile(int expert, int first) const {
    const Bank& bank = s_.p.down;
    return tile_product(bank.data[expert], QuantType(bank.type), bank.rows, bank.columns, first);
  }
  void add_job(const Grouping& g, const Job& job, int first, Product& product, float* sums, Worker& worker) const {
    const auto type = QuantType(s_.p.down.type);
    const void** at = worker.tokens;
    for (int slot = job.first; slot < job.first + job.count; slot++)
      at = add_token(at, s_.hidden_row(slot), activation_row(*s_.hidden_rounded, slot, s_.width(), s_.rounding()),
                     s_.width(), type, s_.rounding());
    run_tile(s_.isa, product, type, s_.rounding(), worker.tokens, job.count, worker.tiles[0]);
    const float* bias = s_.p.down.bias ? s_.p.down.bias + size_t(job.expert) * s_.p.down.rows + first : nullptr;
    for (int i = 0; i < job.count; i++) {
      float *y = sums + g.tokens[job.first + i] * kTileRows, *value = worker.tiles[0] + i * kTileRows;
      const float weight = g.weights[job.first + i];
      for (int r = 0; r < product.num_rows; r++) y[r] += weight * (value[r] + (bias ? bias[r] : 0.f));
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

  const Shape s_;
};

}  // namespace

void add_experts(Program& program, const ExpertsParams& p) {
  const int max_rows = program.max_rows(Rows(p.rows));
  Shape shape{p, program.isa, std::min(p.num_experts, max_rows * p.k), max_rows * p.k, {}, {}, {}, {}};
  const size_t slots = shape.slots;
  shape.input = program.request(Scratch::Activations, activation_bytes(max_rows, p.gate.columns, shape.rounding()));
  shape.hidden = program.request(Scratch::Hidden, slots * shape.width() * sizeof(float));
  shape.hidden_rounded = program.request(Scratch::HiddenActivations, activation_bytes(slots, shape.width(), shape.rounding()));
  shape.grouping = program.request(Scratch::Jobs, shape.grouping_bytes());
  program.add<Group>(shape);
  if (!shape.floats_in())
    program.add<Quantise>(p.x, p.gate.columns, Rows(p.rows), shape.rounding(), program.isa, shape.input);
  program.add<GateUp>(shape);
  program.add<Down>(shape);
}

}  // namespace sharpi
