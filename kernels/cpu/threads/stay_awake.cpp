// A thread that keeps its core from sleeping while another thread of the process waits on it.
//
// A core of a virtual machine that sleeps is given to others: it takes long to wake up, and
// computes slowly for a while afterwards. The thread has the lowest priority there is, so that any
// thread that becomes ready runs at once.
#include <atomic>
#include <chrono>
#include <new>
#include <system_error>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

#include "relax.h"

#ifndef SHARPI_API
#define SHARPI_API extern "C" __attribute__((visibility("default")))
#endif

namespace {

constexpr auto kMost = std::chrono::milliseconds(100);  // of spinning for one wait

class StayAwake {
 public:
  StayAwake() : thread_([this] { run(); }) {}
  ~StayAwake() {
    set(kEnd);
    thread_.join();
  }
  void begin() { set(kSpin); }
  void end() { set(kRest); }

 private:
  enum : uint32_t { kRest, kSpin, kEnd };

  void set(uint32_t state) {
    state_.store(state, std::memory_order_release);
    if (state != kRest) state_.notify_one();
  }
  void run() {
#if defined(__linux__)
    const sched_param lowest{};
    if (sched_setscheduler(0, SCHED_IDLE, &lowest)) return;  // then it would be in the way
    uint32_t state;
    while ((state = state_.load(std::memory_order_acquire)) != kEnd) {
      if (state == kRest) state_.wait(kRest, std::memory_order_acquire);
      else spin();
    }
#endif
  }
  void spin() {
    const auto end = std::chrono::steady_clock::now() + kMost;
    while (state_.load(std::memory_order_relaxed) == kSpin) {
      for (int i = 0; i < 32; i++) sharpi::relax();
      uint32_t spinning = kSpin;
      if (std::chrono::steady_clock::now() > end) state_.compare_exchange_strong(spinning, kRest);
    }
  }

  std::atomic<uint32_t> state_{kRest};
  std::thread thread_;  // the last member: it uses the others
};

StayAwake& awake(void* handle) { return *static_cast<StayAwake*>(handle); }

}  // namespace

// Starts the thread, which rests at first; returns null without memory or threads.
SHARPI_API void* sharpi_awake_create() {
  try {
    return new StayAwake;
  } catch (const std::bad_alloc&) {
    return nullptr;
  } catch (const std::system_error&) {
    return nullptr;
  }
}
SHARPI_API void sharpi_awake_destroy(void* handle) { delete &awake(handle); }
// Begins to keep the core awake, for a tenth of a second at most, or ends it.
SHARPI_API void sharpi_awake_begin(void* handle) { awake(handle).begin(); }
SHARPI_API void sharpi_awake_end(void* handle) { awake(handle).end(); }
