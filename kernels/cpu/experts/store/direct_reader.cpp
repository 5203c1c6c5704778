#include "direct_reader.h"

#include <algorithm>

#include "threads/scheduling.h"

namespace sharpi {
namespace {

// measured: smaller is slower, larger keeps fewer in flight
constexpr size_t kLargestRead = 1 << 20;
constexpr size_t kAlignment = 4096;

size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

size_t LoadOrder::bytes() const {
  size_t sum = 0;
  for (const FileRange& range : ranges) sum += range.bytes;
  return sum;
}

DirectReader::DirectReader(const ReaderSettings& settings)
    : max_prefetch_bytes_(settings.max_prefetch_bytes),
      max_expected_(std::max(1, settings.reads_in_flight / 2)),
      max_prefetches_(std::max(1, settings.reads_in_flight / 4)) {
  for (const std::string& path : settings.files)
    files_.push_back(std::make_unique<DirectFile>(path, settings.direct));
  for (int i = 0; i < settings.reads_in_flight; i++)
    threads_.emplace_back(&DirectReader::serve, this);
}

DirectReader::~DirectReader() {
  {
    std::lock_guard guard(lock_);
    stop_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void DirectReader::demand(const LoadOrder& order) {
  size_t count;
  {
    std::lock_guard guard(lock_);
    begin(*order.load, false);
    count = append(demanded_, order);
  }
  wake(count);
}

void DirectReader::expect(const std::vector<LoadOrder>& batch) {
  if (batch.empty()) return;
  size_t count = 0;
  {
    std::lock_guard guard(lock_);
    for (const LoadOrder& order : batch) {
      begin(*order.load, true);
      count += append(expected_, order);
    }
  }
  wake(count);
}

// Wakes a thread for each of so many reads. A thread that wakes takes time from those that compute,
// so that no more are woken than have something to do.
void DirectReader::wake(size_t count) {
  for (size_t i = 0; i < std::min(count, threads_.size()); i++) work_.notify_one();
}

void DirectReader::prefetch(const std::vector<LoadOrder>& batch) {
  size_t count;
  {
    std::lock_guard guard(lock_);
    Batch reads;
    size_t bytes = 0;
    for (const LoadOrder& order : batch) {
      if (bytes + order.bytes() > max_prefetch_bytes_) {
        counts_.dropped_prefetches++;
        continue;
      }
      bytes += order.bytes();
      begin(*order.load, true);
      append(reads, order);
    }
    if (reads.empty()) return;
    while (prefetch_bytes_ + bytes > max_prefetch_bytes_) drop_oldest();
    prefetch_bytes_ += bytes;
    count = reads.size();
    batches_.push_back(std::move(reads));
  }
  wake(count);
}

void DirectReader::begin(Load& load, bool is_prefetch) {
  load.fault = kReadFine;
  load.is_dropped = false;
  load.is_prefetch = is_prefetch;
  load.state.store(LoadState::Loading, std::memory_order_relaxed);
}

size_t DirectReader::append(std::deque<Read>& queue, const LoadOrder& order) {
  const size_t before = queue.size();
  for (const FileRange& range : order.ranges) {
    const size_t count = std::max<size_t>(1, (range.bytes + kLargestRead - 1) / kLargestRead);
    const size_t share = round_up((range.bytes + count - 1) / count, kAlignment);
    for (size_t done = 0; done < range.bytes; done += share) {
      const size_t bytes = std::min(share, range.bytes - done);
      queue.push_back({order.load, {range.file, range.offset + done, bytes, range.to + done}});
      order.load->pending++;
    }
  }
  return queue.size() - before;
}

void DirectReader::drop_oldest() {
  const Batch reads = std::move(batches_.front());
  batches_.pop_front();
  for (const Read& read : reads) {
    prefetch_bytes_ -= read.range.bytes;
    counts_.dropped_prefetches += !read.load->is_dropped;
    read.load->is_dropped = true;
    if (--read.load->pending == 0) settle(*read.load);
  }
}

bool DirectReader::promote(Load& load) {
  bool is_whole;
  size_t count;
  {
    std::lock_guard guard(lock_);
    count = demanded_.size();
    promote(expected_, load);
    for (Batch& batch : batches_) promote(batch, load);
    std::erase_if(batches_, [](const Batch& batch) { return batch.empty(); });
    load.is_prefetch = false;
    is_whole = !load.is_dropped;
    count = demanded_.size() - count;
  }
  wake(count);
  return is_whole;
}

void DirectReader::promote(std::deque<Read>& queue, const Load& load) {
  for (const Read& read : queue)
    if (read.load == &load) demanded_.push_back(read);
  take_back(queue, load);
}

int DirectReader::take_back(std::deque<Read>& queue, const Load& load) {
  const bool is_prediction = &queue != &demanded_ && &queue != &expected_;
  return int(std::erase_if(queue, [&](const Read& read) {
    if (read.load == &load && is_prediction) prefetch_bytes_ -= read.range.bytes;
    return read.load == &load;
  }));
}

void DirectReader::take_back(Load& load) {
  load.is_dropped = true;
  load.pending -= take_back(demanded_, load) + take_back(expected_, load);
  for (Batch& batch : batches_) load.pending -= take_back(batch, load);
  std::erase_if(batches_, [](const Batch& batch) { return batch.empty(); });
}

bool DirectReader::drop(Load& load) {
  std::lock_guard guard(lock_);
  take_back(load);
  if (load.pending) return false;
  settle(load);
  return true;
}

void DirectReader::cancel(Load& load) {
  std::unique_lock guard(lock_);
  take_back(load);
  settled_.wait(guard, [&] { return load.pending == 0; });
  settle(load);
}

void DirectReader::serve() {
  prefer_short_slices();
  std::unique_lock guard(lock_);
  while (true) {
    work_.wait(guard, [&] { return stop_ || has_work(); });
    if (stop_) return;
    const Read read = take();
    guard.unlock();
    const FileRange& range = read.range;
    const int fault = files_[range.file]->read(range.to, range.offset, range.bytes);
    guard.lock();
    finish(read, fault);
  }
}

DirectReader::Read DirectReader::take() {
  const bool is_early = demanded_.empty(), is_prediction = is_early && expected_.empty();
  std::deque<Read>& queue = is_prediction ? batches_.front() : is_early ? expected_ : demanded_;
  Read read = queue.front();
  read.is_early = is_early;
  early_reads_ += is_early;
  queue.pop_front();
  if (!is_prediction) return read;
  if (queue.empty()) batches_.pop_front();
  prefetch_bytes_ -= read.range.bytes;
  return read;
}

void DirectReader::finish(const Read& read, int fault) {
  Load& load = *read.load;
  early_reads_ -= read.is_early;
  if (fault == kReadFine) {
    counts_.prefetched_bytes += read.is_early ? int64_t(read.range.bytes) : 0;
    load.bytes_read.fetch_add(int64_t(read.range.bytes), std::memory_order_relaxed);
  } else {
    if (load.fault == kReadFine) load.fault = fault;
    last_fault_ = files_[read.range.file]->describe(fault);
  }
  if (--load.pending == 0) settle(load);
}

void DirectReader::settle(Load& load) {
  const bool failed = load.fault != kReadFine;
  counts_.failed_reads += failed;
  counts_.failed_prefetches += failed && load.is_prefetch;
  load.state.store(load.is_dropped ? LoadState::Absent
                   : failed        ? LoadState::Failed
                                   : LoadState::Ready,
                   std::memory_order_release);
  load.state.notify_all();
  settled_.notify_all();
}

bool DirectReader::is_direct() const {
  return std::all_of(files_.begin(), files_.end(), [](auto& file) { return file->is_direct(); });
}

ReaderCounts DirectReader::counts() const {
  std::lock_guard guard(lock_);
  return counts_;
}

std::string DirectReader::last_fault() const {
  std::lock_guard guard(lock_);
  return last_fault_;
}

}  // namespace sharpi
