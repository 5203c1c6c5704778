#include "program.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <new>

#include "matmul/matmul.h"

namespace sharpi {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kHugePage = 2 << 20;
constexpr size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

// Sorts spans by address, drops what is listed twice, and joins adjacent ones of one node.
std::vector<PageSpan> joined(std::vector<PageSpan> spans) {
  std::sort(spans.begin(), spans.end(),
            [](const PageSpan& a, const PageSpan& b) { return a.at < b.at; });
  std::vector<PageSpan> out;
  for (const PageSpan& span : spans) {
    const uint8_t* end = out.empty() ? nullptr : out.back().at + out.back().bytes;
    if (span.at < end) continue;
    if (span.at == end && out.back().node == span.node) out.back().bytes += span.bytes;
    else out.push_back(span);
  }
  return out;
}

}  // namespace

Memory::Memory(size_t bytes) : bytes_(round_up(std::max<size_t>(bytes, 1), 4096)) {
  void* p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  if (bytes_ >= kHugePage) madvise(p, bytes_, MADV_HUGEPAGE);
  data_ = static_cast<uint8_t*>(p);
}

Memory::~Memory() { munmap(data_, bytes_); }

Program::Program(const Isa& isa, int max_tokens, int max_outputs, int max_positions)
    : isa(isa), max_tokens(max_tokens), max_outputs(max_outputs), max_positions(max_positions) {}

uint8_t* const* Program::request(Scratch kind, size_t bytes) {
  sizes_[int(kind)] = std::max(sizes_[int(kind)], bytes);
  return &addresses_[int(kind)];
}

void Program::seal() {
  for (int i = 0; i < int(Scratch::kCount); i++) {
    if (!sizes_[i]) continue;
    memory_.push_back(std::make_unique<Memory>(sizes_[i]));
    addresses_[i] = memory_.back()->data();
  }
}

bool Program::seal_within(Program& other) {
  if (other.max_tokens < max_tokens || other.max_outputs < max_outputs) return false;
  for (int i = 0; i < int(Scratch::kCount); i++) {
    if (sizes_[i] > other.sizes_[i]) return false;
    addresses_[i] = other.addresses_[i];
  }
  owner_ = other.owner_;
  return true;
}

size_t Program::scratch_bytes() const {
  size_t sum = 0;
  for (size_t bytes : sizes_) sum += bytes;
  return sum;
}

std::vector<PageSpan> Program::page_spans(const Pool& pool) const {
  std::vector<PageSpan> spans;
  std::vector<Bytes> part;
  for (const auto& stage : stages_) {
    const int parts = stage->num_weight_parts();
    for (int i = 0, thread = 0; i < parts; i++) {
      while (pool.shares().first_task(parts, thread + 1) <= i) thread++;
      part.clear();
      stage->weights_of(i, part);
      for (const Bytes& b : part) spans.push_back({b.at, b.count, pool.shares().node(thread), 0});
    }
  }
  return joined(std::move(spans));
}

bool Program::run(Pool& pool, const Step& step, int num_threads) {
  static std::atomic<uint64_t> runs = 0;
  std::vector<Worker>& workers = owner_->workers(pool.size());
  const uint64_t number = ++runs;
  for (Worker& worker : workers) worker.run = number;
  return pool.run(stages_, step, num_threads, workers);
}

std::vector<Worker>& Program::workers(int count) {
  const size_t rows = 2 * size_t(std::max({max_tokens, max_outputs, kTilesTogether * kFewTokens}));
  const size_t tile_bytes = round_up(sizeof(float) * kTileRows * rows, kLine);
  while (int(workers_.size()) < count) {
    memory_.push_back(
        std::make_unique<Memory>(tile_bytes * kMaxTileBuffers + rows * sizeof(void*)));
    uint8_t* own = memory_.back()->data();
    Worker worker{int(workers_.size()),
                  {},
                  reinterpret_cast<const void**>(own + tile_bytes * kMaxTileBuffers)};
    for (int i = 0; i < kMaxTileBuffers; i++)
      worker.tiles[i] = reinterpret_cast<float*>(own + i * tile_bytes);
    workers_.push_back(worker);
  }
  return workers_;
}

}  // namespace sharpi
