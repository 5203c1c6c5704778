// Computes the experts that are not on the GPU, while the GPU computes the others.
//
// The GPU and the host communicate through two words in page-locked memory, a request and an
// answer, and go through the layers in turn: a request means that the number of items, their
// experts and their inputs are written.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <thread>
#include <vector>

#include "experts/store/expert_feed.h"
#include "program.h"

#define SHARPI_API extern "C" __attribute__((visibility("default")))

namespace sharpi {
namespace {

constexpr int kMostOfToken = 32;  // experts of a token that a GPU has slots for
constexpr int kSpins = 4000;      // polls of a word before other threads may run

// Each side writes one word; neither word is written by both at once.
struct Mailbox {
  std::atomic<uint32_t>* request;
  std::atomic<uint32_t>* answer;
  const int32_t* num_items;
  const int32_t* experts;  // of each item
};
static_assert(sizeof(std::atomic<uint32_t>) == 4);

struct Layer {
  Program* program;
  ExpertFeed* feed;
  int number;
};

class MissServer {
 public:
  MissServer(Pool& pool, const Mailbox& mailbox, int num_threads, int timeout_ms)
      : pool_(pool), mailbox_(mailbox), num_threads_(num_threads), timeout_(timeout_ms) {}

  // Adds a program of one operation, in the order of the GPU's requests; `feed` brings the experts
  // of the model's layer, and is null where they are in memory.
  void add(Program& program, ExpertFeed* feed, int layer) {
    layers_.push_back({&program, feed, layer});
  }

  // Serves `count` layers. Returns 0, or -1 where no request came in time.
  int serve(int first, int count) {
    for (int i = first; i < first + count; i++) {
      if (!await_request()) return -1;
      mailbox_.request->store(0, std::memory_order_relaxed);
      const int num_items = *mailbox_.num_items;
      if (num_items) compute(layers_[i], num_items);
      mailbox_.answer->store(1, std::memory_order_release);
    }
    return 0;
  }

 private:
  bool await_request() const {
    const auto start = std::chrono::steady_clock::now();
    for (int spins = 0; !mailbox_.request->load(std::memory_order_acquire); spins++) {
      if (spins % kSpins) continue;
      std::this_thread::yield();
      if (std::chrono::steady_clock::now() - start > timeout_) return false;
    }
    return true;
  }

  void compute(const Layer& layer, int num_items) {
    if (layer.feed) acquire(layer, num_items);
    Step step{};
    step.num_tokens = num_items;
    layer.program->run(pool_, step, num_threads_);
  }

  // Items of one token have an expert each; those of a batch share some.
  void acquire(const Layer& layer, int num_items) const {
    const int32_t* experts = mailbox_.experts;
    bool is_token = num_items <= kMostOfToken;
    for (int i = 1; i < num_items && is_token; i++)
      is_token = std::find(experts, experts + i, experts[i]) == experts + i;
    if (is_token) layer.feed->acquire(layer.number, experts, 1, num_items, StepKind::Token);
    else layer.feed->acquire(layer.number, experts, num_items, 1, StepKind::Batch);
  }

  Pool& pool_;
  const Mailbox mailbox_;
  const int num_threads_;
  const std::chrono::milliseconds timeout_;
  std::vector<Layer> layers_;
};

}  // namespace
}  // namespace sharpi

using namespace sharpi;

// Creates a server. `request` and `answer` are uint32 words of page-locked memory; a request is
// about `num_items` items, with their `experts`.
SHARPI_API void* sharpi_misses_create(void* pool, void* request, void* answer,
                                      const int32_t* num_items, const int32_t* experts,
                                      int num_threads, int timeout_ms) {
  const Mailbox mailbox = {static_cast<std::atomic<uint32_t>*>(request),
                           static_cast<std::atomic<uint32_t>*>(answer), num_items, experts};
  return new (std::nothrow) MissServer(*static_cast<Pool*>(pool), mailbox, num_threads, timeout_ms);
}
SHARPI_API void sharpi_misses_destroy(void* server) { delete static_cast<MissServer*>(server); }

// Adds a layer's program. Returns 0, or -1 when memory is short.
SHARPI_API int sharpi_misses_add(void* server, void* program, void* feed, int layer) {
  try {
    static_cast<MissServer*>(server)->add(*static_cast<Program*>(program),
                                          static_cast<ExpertFeed*>(feed), layer);
  } catch (const std::bad_alloc&) {
    return -1;
  }
  return 0;
}

// Serves `count` layers from the first on. Returns 0, -1 where no request came in time, -2 when
// memory is short.
SHARPI_API int sharpi_misses_serve(void* server, int first, int count) {
  try {
    return static_cast<MissServer*>(server)->serve(first, count);
  } catch (const std::bad_alloc&) {
    return -2;
  }
}
