// A recorded step: the flat list of stages of one forward pass, and the memory that they share.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "isa.h"
#include "stage.h"
#include "threads/pool.h"

namespace sharpi {

// Zeroed memory on pages of its own, aligned to at least 64 bytes; in huge pages where the system
// gives them.
class Memory {
 public:
  explicit Memory(size_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  uint8_t* data() const { return data_; }

 private:
  uint8_t* data_;
  size_t bytes_;
};

// Scratch memory that operations use in turn: one buffer of each kind, as large as the largest
// request.
enum class Scratch { Activations, Hidden, HiddenActivations, Jobs, Sums, Partials, kCount };

// A piece of weights, and the NUMA node of the threads that read it.
struct PageSpan {
  const uint8_t* at;
  uint64_t bytes;
  int32_t node, reserved;
};

class Program {
 public:
  Program(const Isa& isa, int max_tokens, int max_outputs, int max_positions);

  template <class S, class... Args>
  void add(Args&&... args) {
    stages_.push_back(std::make_unique<S>(std::forward<Args>(args)...));
  }
  // Requests scratch memory; its address is known once the program is sealed, so stages keep the
  // returned reference.
  uint8_t* const* request(Scratch kind, size_t bytes);
  void seal();
  // Seals the program with the memory of another program, which has to be at least as large and to
  // outlive this one; the two never run at once.
  bool seal_within(Program& other);
  // Returns false if the pool's interrupt ended the step early: its results are void then.
  bool run(Pool& pool, const Step& step, int num_threads);
  size_t scratch_bytes() const;
  // Returns the weights by the nodes of the threads that read them, in the order of addresses.
  std::vector<PageSpan> page_spans(const Pool& pool) const;

  const Isa& isa;
  const int max_tokens, max_outputs, max_positions;
  // True if a thread takes the same rows of every expert, because they are on its node.
  bool shares_rows = false;
  int max_rows(Rows rows) const {
    return rows == Rows::Tokens ? max_tokens : rows == Rows::Outputs ? max_outputs : 1;
  }

 private:
  std::vector<Worker>& workers(int count);

  Stages stages_;
  size_t sizes_[int(Scratch::kCount)] = {};
  uint8_t* addresses_[int(Scratch::kCount)] = {};
  std::vector<std::unique_ptr<Memory>> memory_;
  std::vector<Worker> workers_;
  Program* owner_ = this;  // the program that owns the memory
};

}  // namespace sharpi
