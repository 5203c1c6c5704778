// Sorts a step's routes by expert: which tokens each expert computes, and which experts are
// computed together.
#pragma once
#include <atomic>
#include <vector>

#include "matmul/tiles.h"
#include "ops.h"
#include "runtime/program.h"

namespace sharpi {

// An expert and the tokens that chose it; its hidden rows are slots [first, first + count).
struct Job {
  int32_t expert, first, count;
  int32_t rank = -1, item = 0;  // another rank that computes it, and the first item of its reply
  bool is_remote() const { return rank >= 0; }
};

// Consecutive jobs whose experts are in memory at the same time: [first, end) by id. `order` lists
// them again: [first, in_flight) are ready, [in_flight, remote) are in flight, and other ranks
// compute [remote, end).
struct JobBatch {
  int32_t first, in_flight, remote, end;
};

// Views into the scratch memory that the grouping writes and the other stages read.
struct Grouping {
  int32_t *num_jobs, *num_batches;
  Job* jobs;                         // (max_jobs)
  JobBatch* batches;                 // (max_batches)
  int32_t* order;                    // (max_jobs)
  int32_t* tokens;                   // (slots) token of each slot
  float* weights;                    // (slots)
  std::atomic<int32_t>* tiles_done;  // (max_jobs, blocks of the hidden width)
};

// The sizes of one feed-forward, shared by its stages.
struct ExpertShape {
  const ExpertsParams p;
  const Isa& isa;
  int max_jobs, slots, max_batches, batch_staging;
  bool shares_rows;  // each expert's rows are shared among the threads in the same way
  uint8_t *const *input, *const *hidden, *const *hidden_rounded, *const *grouping, *const *sums;

  ExpertShape(Program& program, const ExpertsParams& params);

  int width() const { return p.up.rows; }
  bool has_gate() const { return p.gate.data; }
  int blocks() const { return activation_blocks(width()); }
  int count_rows(const Step& step) const { return sharpi::count_rows(Rows(p.rows), step); }
  int jobs_of(const Step& step) const { return std::min(p.num_experts, count_rows(step) * p.k); }
  // Returns true if a step can have a batch of this index.
  bool may_have(int batch, const Step& step) const {
    return jobs_of(step) > int64_t(batch) * batch_staging;
  }
  Rounding rounding() const { return Rounding(p.precision); }
  bool floats_in() const {
    return (!has_gate() || reads_floats(QuantType(p.gate.type), rounding())) &&
           reads_floats(QuantType(p.up.type), rounding());
  }
  bool floats_down() const { return reads_floats(QuantType(p.down.type), rounding()); }
  float* hidden_row(int slot) const {
    return reinterpret_cast<float*>(*hidden) + size_t(slot) * width();
  }
  Grouping view() const;
  // Appends the memory of one tile of every expert, where they stay in memory.
  void weights_of(const StackedMatrix& stacked, int tile, std::vector<Bytes>& out) const;

 private:
  size_t grouping_bytes() const;
};

// Few tokens are limited by memory, which is slower when it is read in short pieces: then a task
// takes up to four adjacent tiles of a matrix, as long as there are tasks for all threads.
constexpr int kFewestTasks = 32;
inline int tiles_together(int num_tokens, int num_tiles) {
  int together = num_tokens <= kFewTokens ? kTilesTogether : 1;
  while (together > 1 && num_tiles < kFewestTasks * together) together /= 2;
  return together;
}

// Sorts the step's routes by expert, one job per expert in use with its tokens in order; and the
// jobs into batches.
class Group : public Stage {
 public:
  explicit Group(const ExpertShape& shape) : s_(shape) {}
  int num_tasks(const Step&) const override { return 1; }
  void run(const Step& step, int, int, Worker&) const override;

 private:
  int expert(int route) const { return s_.p.ids ? s_.p.ids[route] : 0; }
  void make_jobs(const Step& step, Grouping& g) const;
  void make_batches(Grouping& g) const;
  void order_batch(Grouping& g, int first, int end) const;
  void request_remote_jobs(const Step& step, Grouping& g) const;
  const ExpertShape s_;
};

}  // namespace sharpi
