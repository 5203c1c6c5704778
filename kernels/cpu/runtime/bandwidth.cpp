// Measures the machine's limits, for benchmarks to compare the kernels with: bytes read and int8
// operations per second.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "isa.h"

#define SHARPI_API extern "C" __attribute__((visibility("default")))

namespace {

using Clock = std::chrono::steady_clock;
using Work = std::function<void(int thread)>;

// Returns the seconds from the moment when all threads, the caller among them, may begin until the
// last one ends.
double time_together(int num_threads, const Work& work) {
  std::atomic<int> waiting{num_threads};
  std::vector<Clock::time_point> starts(num_threads), ends(num_threads);
  const auto body = [&](int thread) {
    waiting.fetch_sub(1);
    while (waiting.load() > 0) std::this_thread::yield();
    starts[thread] = Clock::now();
    work(thread);
    ends[thread] = Clock::now();
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < num_threads; i++) threads.emplace_back(body, i);
  body(0);
  for (auto& thread : threads) thread.join();
  const auto first = *std::min_element(starts.begin(), starts.end());
  return std::chrono::duration<double>(*std::max_element(ends.begin(), ends.end()) - first).count();
}

typedef uint64_t Line __attribute__((vector_size(64), aligned(1), may_alias));

// Reads four streams, because the rows of a tile are several streams: measured a fifth faster than
// one on Zen 4.
constexpr size_t kStream = 64 << 10;
constexpr size_t kStreams = 4;

// Returns the exclusive or of all words, which costs nothing beside reading them.
uint64_t read_all(const uint8_t* at, size_t bytes) {
  const auto line = [](const uint8_t* p) { return *reinterpret_cast<const Line*>(p); };
  Line sum{};
  for (; bytes >= kStreams * kStream; at += kStreams * kStream, bytes -= kStreams * kStream)
    for (size_t i = 0; i < kStream; i += sizeof(Line))
      sum ^= (line(at + i) ^ line(at + kStream + i)) ^
             (line(at + 2 * kStream + i) ^ line(at + 3 * kStream + i));
  for (; bytes >= sizeof(Line); at += sizeof(Line), bytes -= sizeof(Line)) sum ^= line(at);
  uint64_t result = 0;
  for (int i = 0; i < 8; i++) result ^= sum[i];
  for (; bytes > 0; at++, bytes--) result ^= *at;
  return result;
}

// Reads the bytes [begin, end) of the ranges laid end to end.
uint64_t read_share(const uint8_t* const* ranges, const size_t* sizes, int num_ranges, size_t begin,
                    size_t end) {
  uint64_t result = 0;
  for (int i = 0; i < num_ranges && end > 0; i++) {
    const size_t from = std::min(begin, sizes[i]), to = std::min(end, sizes[i]);
    if (from < to) result ^= read_all(ranges[i] + from, to - from);
    begin -= from, end -= to;
  }
  return result;
}

void keep(const void* result) { asm volatile("" : : "r"(result) : "memory"); }

}  // namespace

// Returns the seconds that `num_threads` threads need to read the ranges, laid end to end and
// shared evenly, `passes` times; -1 for nothing to do.
SHARPI_API double sharpi_read_seconds(const void* const* ranges, const size_t* sizes,
                                      int num_ranges, int num_threads, int passes) {
  if (num_ranges < 1 || num_threads < 1 || passes < 1) return -1;
  size_t total = 0;
  for (int i = 0; i < num_ranges; i++) total += sizes[i];
  const auto bytes = reinterpret_cast<const uint8_t* const*>(ranges);
  return time_together(num_threads, [&](int thread) {
    uint64_t sum = 0;
    for (int i = 0; i < passes; i++)
      sum ^= read_share(bytes, sizes, num_ranges, total / num_threads * thread,
                        thread + 1 < num_threads ? total / num_threads * (thread + 1) : total);
    keep(&sum);
  });
}

// Returns the int8 operations per second (a product and its sum are two) of `num_threads` threads
// with the instructions that the kernels of an instruction set use, measured for about `seconds`;
// -1 where the machine lacks it.
SHARPI_API double sharpi_int8_operations_per_second(const char* isa_name, int num_threads,
                                                    double seconds) {
  const sharpi::Isa* isa = sharpi::find_isa(isa_name);
  if (!isa || num_threads < 1) return -1;
  int64_t rounds = 1 << 12;
  for (;; rounds *= 2) {
    const double taken = time_together(num_threads, [&](int) { isa->int8_loop->run(rounds); });
    if (taken >= seconds)
      return double(num_threads) * double(rounds) * isa->int8_loop->operations / taken;
  }
}
