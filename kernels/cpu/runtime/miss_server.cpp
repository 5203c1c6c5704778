// Computes the experts that are not on the GPU, while the GPU computes the others.
//
// The GPU and the host communicate through two words in page-locked memory, a request and an
// reply, and go through the layers in turn: a request means that the number of items, their
// experts and their inputs are written. A thread of the host serves the requests: it is awake
// before the GPU begins, so that a launch that waits for the GPU never keeps the GPU waiting for
// the host.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "experts/store/expert_feed.h"
#include "program.h"

#define SHARPI_API extern "C" __attribute__((visibility("default")))

namespace sharpi {
namespace {

constexpr int kMostOfToken = 32;  // experts of a token that a GPU has slots for
constexpr int kSpins = 4000;      // polls of a word before other threads may run
constexpr auto kAwake = std::chrono::milliseconds(20);  // time of polling before the thread naps
constexpr auto kNap = std::chrono::microseconds(50);
constexpr int kTooLate = -1, kNoMemory = -2;

// Each side writes one word; neither word is written by both at once.
struct Mailbox {
  std::atomic<uint32_t>* request;
  std::atomic<uint32_t>* reply;
  const int32_t* num_items;
  int32_t* predicted;      // the number of predicted experts, their layer, and then these
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
  // Starts the thread, which sleeps until begin(); throws std::system_error where it does not
  // start.
  MissServer(Pool& pool, const Mailbox& mailbox, int num_threads, int timeout_ms)
      : pool_(pool),
        mailbox_(mailbox),
        num_threads_(num_threads),
        timeout_(timeout_ms),
        thread_([this] { live(); }) {}

  ~MissServer() {
    cancel();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  // Adds a program of one operation, in the order of the GPU's requests; `feed` brings the experts
  // of the model's layer, and is null where they are in memory.
  void add(Program& program, ExpertFeed* feed, int layer) {
    layers_.push_back({&program, feed, layer});
  }

  // Wakes the thread, which serves requests of these layers in turn, after those of before.
  void begin(const int32_t* layers, int count) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return is_idle_; });
      asking_.assign(layers, layers + count);
      served_ = status_ = 0;
      is_idle_ = false;
      is_cancelled_.store(false, std::memory_order_relaxed);
      awaited_.store(0, std::memory_order_relaxed);
    }
    changed_.notify_all();
  }

  // Waits until `count` requests have replies. Returns 0, kTooLate where the GPU made no request
  // in time, or kNoMemory. Time counts from here on: before, kernels may have been compiled.
  int await(int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    awaited_.store(count, std::memory_order_relaxed);
    changed_.wait(lock, [&] { return served_ >= count || is_idle_; });
    awaited_.store(0, std::memory_order_relaxed);
    return served_ >= count ? 0 : status_;
  }

  // Ends the wait for further requests, because the GPU will make none.
  void cancel() {
    std::unique_lock<std::mutex> lock(mutex_);
    is_cancelled_.store(true, std::memory_order_relaxed);
    changed_.wait(lock, [&] { return is_idle_; });
  }

 private:
  void live() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ends_ || !is_idle_; });
      if (ends_) return;
      lock.unlock();
      const int status = serve();
      lock.lock();
      status_ = status;
      is_idle_ = true;
      changed_.notify_all();
    }
  }

  int serve() {
    try {
      for (const int layer : asking_) {
        if (!await_request()) return kTooLate;
        mailbox_.request->store(0, std::memory_order_relaxed);
        const int num_items = *mailbox_.num_items;
        if (num_items || *mailbox_.predicted) compute(layers_[layer], num_items);
        mailbox_.reply->store(1, std::memory_order_release);
        const std::lock_guard<std::mutex> lock(mutex_);
        served_++;
        if (served_ == awaited_.load(std::memory_order_relaxed)) changed_.notify_all();
      }
    } catch (const std::bad_alloc&) {
      return kNoMemory;
    }
    return 0;
  }

  bool await_request() const {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    auto since = start;  // that the caller has waited, too
    for (int spins = 0; !mailbox_.request->load(std::memory_order_acquire); spins++) {
      if (spins % kSpins) continue;
      if (is_cancelled_.load(std::memory_order_relaxed)) return false;
      const auto now = Clock::now();
      if (!awaited_.load(std::memory_order_relaxed)) since = now;
      if (now - since > timeout_) return false;
      if (now - start < kAwake) {
        std::this_thread::yield();
      } else {
        spins = -1;
        std::this_thread::sleep_for(kNap);
      }
    }
    return true;
  }

  void compute(const Layer& layer, int num_items) {
    if (layer.feed && num_items) acquire(layer, num_items);
    if (layer.feed) prefetch(*layer.feed);
    if (!num_items) return;
    Step step{};
    step.num_tokens = num_items;
    layer.program->run(pool_, step, num_threads_);
  }

  // Begins to read what is predicted for a later layer, after what this one waits for.
  void prefetch(ExpertFeed& feed) const {
    const int count = mailbox_.predicted[0];
    if (count) feed.predict_routes(mailbox_.predicted[1], mailbox_.predicted + 2, count);
    mailbox_.predicted[0] = 0;
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

  std::mutex mutex_;
  std::condition_variable changed_;
  // Written under the mutex; the thread reads `asking_` without it while it serves.
  std::vector<int32_t> asking_;
  int served_ = 0;
  int status_ = 0;
  bool is_idle_ = true;
  bool ends_ = false;
  std::atomic<bool> is_cancelled_{false};
  std::atomic<int> awaited_{0};  // the reply that the caller waits for; 0 while it does not
  std::thread thread_;           // last: it uses all the others
};

}  // namespace
}  // namespace sharpi

using namespace sharpi;

// Creates a server with its thread, or null where there is no memory or no thread. `request` and
// `reply` are uint32 words of page-locked memory; a request is about `num_items` items, with their
// `experts`, and about experts `predicted` for a later layer: their number, the layer, and they.
SHARPI_API void* sharpi_misses_create(void* pool, void* request, void* reply,
                                      const int32_t* num_items, int32_t* predicted,
                                      const int32_t* experts, int num_threads, int timeout_ms) {
  const Mailbox mailbox = {static_cast<std::atomic<uint32_t>*>(request),
                           static_cast<std::atomic<uint32_t>*>(reply), num_items, predicted,
                           experts};
  try {
    return new MissServer(*static_cast<Pool*>(pool), mailbox, num_threads, timeout_ms);
  } catch (const std::exception&) {
    return nullptr;
  }
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

// Begins to serve requests of these layers, in this order. Returns 0, or -2 when memory is short.
SHARPI_API int sharpi_misses_begin(void* server, const int32_t* layers, int count) {
  try {
    static_cast<MissServer*>(server)->begin(layers, count);
  } catch (const std::bad_alloc&) {
    return kNoMemory;
  }
  return 0;
}

// Waits until so many requests since the beginning have replies. Returns 0, -1 where no request
// came in time, -2 when memory is short.
SHARPI_API int sharpi_misses_await(void* server, int count) {
  return static_cast<MissServer*>(server)->await(count);
}

// Ends the wait for requests that will not come.
SHARPI_API void sharpi_misses_cancel(void* server) { static_cast<MissServer*>(server)->cancel(); }
