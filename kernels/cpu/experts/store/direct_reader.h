// Reads experts from disk, several reads in flight: those that are waited for first, then those
// that get a slot early, then predictions.
//
// A few threads that block in pread keep a disk as busy as io_uring does (3.1 GB/s of 1 MiB reads
// either way, at 0.02 CPU seconds a gigabyte) and run where io_uring is forbidden.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "direct_reader_file.h"

namespace sharpi {

enum class LoadState : uint32_t { Absent, Loading, Ready, Failed };

// What one expert's reads end in. All but the atomics is guarded by the reader's lock.
struct Load {
  std::atomic<LoadState> state{LoadState::Absent};
  int pending = 0;          // reads that are queued or in flight
  int fault = kReadFine;    // of the read that failed first
  bool is_dropped = false;  // some reads will not happen: it ends absent
  bool is_prefetch = false;
  std::atomic<int64_t> bytes_read{0};  // since it was made
};

// A range of a file, aligned to 4096 as its destination is.
struct FileRange {
  int32_t file;
  uint64_t offset;
  size_t bytes;
  uint8_t* to;
};

// One expert to read.
struct LoadOrder {
  Load* load;
  std::vector<FileRange> ranges;
  size_t bytes() const;
};

struct ReaderSettings {
  std::vector<std::string> files;
  bool direct = true;
  int reads_in_flight = 8;
  size_t max_prefetch_bytes = 0;  // queued at most
};

struct ReaderCounts {
  int64_t dropped_prefetches = 0;  // experts, for want of room in the queue
  int64_t failed_prefetches = 0;   // experts
  int64_t prefetched_bytes = 0;    // read before anybody waited
};

class DirectReader {
 public:
  // Throws std::system_error naming the file.
  explicit DirectReader(const ReaderSettings& settings);
  ~DirectReader();

  // Starts reads that somebody waits for.
  void demand(const LoadOrder& order);
  // Queues reads that begin when no demand is queued, half as many at a time, so that a demand does
  // not meet a busy disk. None is dropped: each has a slot whose former holder is gone.
  void expect(const std::vector<LoadOrder>& batch);
  // Queues predictions, which begin when nothing else is queued, a quarter as many at a time.
  // Beyond the bound the oldest batch is dropped.
  void prefetch(const std::vector<LoadOrder>& batch);
  // Somebody waits for an early read now. False where part of it was dropped: cancel and demand it.
  bool promote(Load& load);
  // Takes back what has not begun. True if nothing has: the load is absent then; else it is absent
  // once that ends.
  bool drop(Load& load);
  // The same, and waits for what has begun.
  void cancel(Load& load);

  bool is_direct() const;
  ReaderCounts counts() const;
  // A sentence about the last read that failed; empty when none did.
  std::string last_fault() const;

 private:
  struct Read {
    Load* load;
    FileRange range;
    bool is_early = false;  // when it began
  };
  using Batch = std::deque<Read>;

  void begin(Load& load, bool is_prefetch);
  void append(std::deque<Read>& queue, const LoadOrder& order);
  void drop_oldest();
  void promote(std::deque<Read>& queue, const Load& load);
  int take_back(std::deque<Read>& queue, const Load& load);
  void take_back(Load& load);
  void serve();
  bool has_work() const {
    return !demanded_.empty() || (!expected_.empty() && early_reads_ < max_expected_) ||
           (!batches_.empty() && early_reads_ < max_prefetches_);
  }
  Read take();
  void finish(const Read& read, int fault);
  void settle(Load& load);

  std::vector<std::unique_ptr<DirectFile>> files_;
  const size_t max_prefetch_bytes_;
  const int max_expected_, max_prefetches_;  // of early reads in flight
  mutable std::mutex lock_;
  std::condition_variable work_, settled_;
  std::deque<Read> demanded_, expected_;
  std::deque<Batch> batches_;  // of predictions, never an empty one
  size_t prefetch_bytes_ = 0;  // in batches_
  int early_reads_ = 0;        // in flight
  ReaderCounts counts_;
  std::string last_fault_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace sharpi
