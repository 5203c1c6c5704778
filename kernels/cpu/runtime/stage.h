// A stage: the unit that the thread pool runs. An operation is one stage or a few.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "attention/kv_pages.h"

namespace sharpi {

// The input of one pass: the only data that changes between replays of a program. Arrays have
// num_tokens entries, except output_rows.
struct Step {
  int32_t num_tokens;
  int32_t num_outputs;  // tokens for which logits are requested
  const int32_t* ids;
  const int32_t* positions;    // positions within each token's sequence
  const int32_t* sequences;    // the token's row of the page table
  const int32_t* output_rows;  // (num_outputs,) indices of tokens
  const int32_t* page_table;   // (sequences, pages_per_sequence): page ids, 64 positions each
  int32_t pages_per_sequence;
  int32_t num_predicted;  // tokens for which the routes of later layers are predicted: all, or 0
  float* const*
      states;  // (sequences) each one's memory for recurrent layers; null for a model without any
  // (num_tokens) or null: where a token's state is left, for sequences whose own state is to stay
  // as it was; null for the tokens of other sequences.
  float* const* states_after;
  // (num_tokens) or null: where a token's keys and values are among those of its sequence. Null:
  // at its position, which it is unless the sequence has lost some.
  const int32_t* slots;
  // (sequences) or null: how many keys and values each head keeps after this step; 0: all. They are
  // copied to the pages of `kept_table`, which is like `page_table`.
  const int32_t* num_kept;
  const int32_t* kept_table;

  int32_t slot(int token) const { return (slots ? slots : positions)[token]; }

  // Returns the id of the page that holds a slot of the token's sequence.
  int32_t page_at(int token, int slot) const {
    return page_table[size_t(sequences[token]) * pages_per_sequence + slot / kPage];
  }
  int32_t kept_page_at(int token, int slot) const {
    return kept_table[size_t(sequences[token]) * pages_per_sequence + slot / kPage];
  }
};

// The number of rows that an operation works on: all tokens, those with outputs, or those whose
// routes are predicted.
enum class Rows : int32_t { Tokens = 0, Outputs = 1, Predicted = 2 };
inline int count_rows(Rows rows, const Step& step) {
  return rows == Rows::Tokens    ? step.num_tokens
         : rows == Rows::Outputs ? step.num_outputs
                                 : step.num_predicted;
}

constexpr int kMaxTileBuffers = 3;
constexpr int kFewTokens = 3,
              kTilesTogether = 4;  // a task of so few tokens may take so many tiles at once

// One thread's own memory.
struct Worker {
  int thread;
  // each (2 * max_tokens, 32): two levels of rounding, and room for kTilesTogether of kFewTokens
  float* tiles[kMaxTileBuffers];
  const void** tokens;  // (2 * max_tokens) addresses passed to a product
  uint64_t run = 0;     // the number of this run, which no other run of any program has
};

// A piece of memory that is only read.
struct Bytes {
  const uint8_t* at = nullptr;
  size_t count = 0;
};

class Stage {
 public:
  virtual ~Stage() = default;
  // Returns the upper bound of tasks in this step; a stage of one task runs on one
  // thread, and needs no barrier before another such stage.
  virtual int num_tasks(const Step&) const = 0;
  // Returns the number of tasks, known once the stages before are done.
  virtual int num_ready_tasks(const Step& step) const { return num_tasks(step); }
  // Returns the memory that a task reads first, where that is known although stages before are
  // still running: a thread that waits for them prefetches it.
  virtual Bytes reads_first(const Step&, int) const { return {}; }
  // Returns true if an interrupted run may end before this stage: it begins a layer's mixer, where
  // the layers before hold no expert any more.
  virtual bool may_end_before() const { return false; }
  // Weights that stay where they are and that the stage reads in the order of its tasks, in parts
  // of equal size: a thread that has a fraction of the tasks reads that fraction of the parts.
  virtual int num_weight_parts() const { return 0; }
  virtual void weights_of(int, std::vector<Bytes>&) const {}
  // Runs one task. `next` is the task that this thread takes afterwards, as far as is known, or -1.
  virtual void run(const Step&, int task, int next, Worker&) const = 0;
};
using Stages = std::vector<std::unique_ptr<Stage>>;

}  // namespace sharpi
