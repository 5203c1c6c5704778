// A stage: the unit that the thread pool runs. An operation is one stage or a few.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "attention/kv_pages.h"

namespace sharpi {

// What one pass is about; the only data that changes between replays of a program. Arrays have
// num_tokens entries, but for output_rows.
struct Step {
  int32_t num_tokens;
  int32_t num_outputs;  // tokens whose logits are wanted
  const int32_t* ids;
  const int32_t* positions;    // within the token's sequence
  const int32_t* sequences;    // row of the page table
  const int32_t* output_rows;  // (num_outputs,) indices of tokens
  const int32_t* page_table;   // (sequences, pages_per_sequence): page ids of each sequence's
                               // positions, 64 a page
  int32_t pages_per_sequence;
  int32_t
      num_predicted;  // 1 where the routes of later layers are to be predicted, for a single token
  float* const*
      states;  // (sequences) memory of each one's recurrent layers; null for a model without any

  // Id of the page that holds a position of the token's sequence.
  int32_t page_at(int token, int position) const {
    return page_table[size_t(sequences[token]) * pages_per_sequence + position / kPage];
  }
};

// How many rows an operation works on.
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
  float* tiles[kMaxTileBuffers];  // each (2 * max_tokens, 32): two levels of rounding; room for
                                  // kTilesTogether of kFewTokens
  const void** tokens;            // (2 * max_tokens) addresses handed to a product
};

// A piece of memory that is only read.
struct Bytes {
  const uint8_t* at = nullptr;
  size_t count = 0;
};

class Stage {
 public:
  virtual ~Stage() = default;
  // Tasks of this step at most; a stage of one task runs on the first thread, and needs no barrier
  // between its like.
  virtual int num_tasks(const Step&) const = 0;
  // Tasks as they are known once the stages before are done.
  virtual int num_ready_tasks(const Step& step) const { return num_tasks(step); }
  // What a task reads first, where that is known although stages before are at work: a thread that
  // waits for them fetches it.
  virtual Bytes reads_first(const Step&, int) const { return {}; }
  // Runs one task. `next` is the task this thread takes afterwards, as far as is known, or -1.
  virtual void run(const Step&, int task, int next, Worker&) const = 0;
};
using Stages = std::vector<std::unique_ptr<Stage>>;

}  // namespace sharpi
