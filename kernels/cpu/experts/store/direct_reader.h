// Reads experts from disk, several reads in flight: first those that a thread waits for, then those
// that get a slot early, then predictions.
//
// A few threads that block in pread keep a disk as busy as io_uring does (3.1 GB/s of 1 MiB reads
// either way, at 0.02 CPU seconds per gigabyte) and run where io_uring is forbidden.
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

// The state of reading one expert. All but the atomics is guarded by the reader's lock.
struct Load {
  std::atomic<LoadState> state{LoadState::Absent};
  int pending = 0;          // reads that are queued or in flight
  int fault = kReadFine;    // the fault of the first read that failed
  bool is_dropped = false;  // some reads were dropped: the load ends as absent
  bool is_prefetch = false;
  std::atomic<int64_t> bytes_read{0};  // since it was created
};

// A range of a file; it and its destination are aligned to 4096.
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
  size_t max_prefetch_bytes = 0;  // the most bytes that may be queued
};

struct ReaderCounts {
  int64_t dropped_prefetches = 0;  // experts that found no room in the queue
  int64_t failed_prefetches = 0;   // experts
  int64_t failed_reads = 0;        // experts, prefetches included
  int64_t prefetched_bytes = 0;    // read before a thread waited for them
};

class DirectReader {
 public:
  // Opens the files; throws std::system_error naming the file that fails.
  explicit DirectReader(const ReaderSettings& settings);
  ~DirectReader();

  // Starts reads that a thread waits for.
  void demand(const LoadOrder& order);
  // Queues reads that begin when no demand is queued, half as many at a time, so that a demand does
  // not find the disk busy. None of them is dropped: each has a slot whose former expert is gone.
  void expect(const std::vector<LoadOrder>& batch);
  // Queues predictions, which begin when nothing else is queued, a quarter as many at a time.
  // Beyond the bound the oldest batch is dropped.
  void prefetch(const std::vector<LoadOrder>& batch);
  // Makes an early read urgent because a thread waits for it now. Returns false where part of it
  // was dropped: cancel and demand it.
  bool promote(Load& load);
  // Drops the reads that have not begun. Returns true if none has begun: the load is absent then;
  // otherwise it becomes absent once those end.
  bool drop(Load& load);
  // Drops the reads that have not begun, and waits for those that have.
  void cancel(Load& load);

  bool is_direct() const;
  ReaderCounts counts() const;
  // Returns a sentence about the last read that failed; empty if none did.
  std::string last_fault() const;

 private:
  struct Read {
    Load* load;
    FileRange range;
    bool is_early = false;  // when it began
  };
  using Batch = std::deque<Read>;

  void begin(Load& load, bool is_prefetch);
  // Appends an order's reads and returns their number.
  size_t append(std::deque<Read>& queue, const LoadOrder& order);
  void wake(size_t count);
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
  const int max_expected_, max_prefetches_;  // upper bounds of early reads in flight
  mutable std::mutex lock_;
  std::condition_variable work_, settled_;
  std::deque<Read> demanded_, expected_;
  std::deque<Batch> batches_;  // of predictions; no batch is empty
  size_t prefetch_bytes_ = 0;  // in batches_
  int early_reads_ = 0;        // in flight
  ReaderCounts counts_;
  std::string last_fault_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace sharpi
