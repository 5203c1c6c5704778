// Measures how long a cache line takes from one core to another: a barrier costs a few of these.
#include <atomic>
#include <chrono>
#include <thread>

#define SHARPI_API extern "C" __attribute__((visibility("default")))

namespace {

// Turns the word from `mine` to the next number, `rounds` times.
void bounce(std::atomic<uint32_t>& word, uint32_t mine, uint32_t rounds) {
  for (uint32_t i = 0; i < rounds; i++) {
    while (word.load(std::memory_order_acquire) != 2 * i + mine) {
    }
    word.store(2 * i + mine + 1, std::memory_order_release);
  }
}

}  // namespace

// Returns the seconds of one transfer, the mean of `rounds` there and back between two threads.
SHARPI_API double sharpi_line_transfer_seconds(uint32_t rounds) {
  alignas(64) std::atomic<uint32_t> word{0};
  std::thread other([&] { bounce(word, 1, rounds); });
  const auto start = std::chrono::steady_clock::now();
  bounce(word, 0, rounds);
  other.join();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return seconds.count() / (2.0 * rounds);
}
