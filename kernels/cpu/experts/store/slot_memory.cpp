#include "slot_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace sharpi {
namespace {

constexpr size_t kPage = 4096, kHugePage = 2 << 20;
constexpr size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

// Kernels without an advice refuse it, which costs speed alone.
void advise(uint8_t* data, size_t bytes, int advice) { madvise(data, bytes, advice); }

// Touches every page now: otherwise the first tokens would pay for it, and a lack of memory is
// better noticed here.
void populate(uint8_t* data, size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  if (!madvise(data, bytes, MADV_POPULATE_WRITE)) return;
#endif
  for (size_t i = 0; i < bytes; i += kPage) static_cast<volatile uint8_t*>(data)[i] = 0;
}

}  // namespace

SlotMemory::SlotMemory(size_t bytes) : bytes_(round_up(bytes ? bytes : 1, kPage)) {
  const size_t reserved = bytes_ + kHugePage;
  void* p = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  const auto start = reinterpret_cast<uintptr_t>(p);
  data_ = reinterpret_cast<uint8_t*>(round_up(start, kHugePage));
  const size_t before = size_t(reinterpret_cast<uintptr_t>(data_) - start);
  if (before) munmap(p, before);
  if (kHugePage > before) munmap(data_ + bytes_, kHugePage - before);
  advise(data_, bytes_, MADV_HUGEPAGE);
  populate(data_, bytes_);
}

// A huge page of which a part is dropped stays allocated until memory is short, unless it is split
// first: advising that the parts at both ends may be freed does that at once. Without huge pages
// for the range, the kernel does not fill it again in the background.
void SlotMemory::give_back(uint8_t* at, size_t bytes) {
  const auto start = reinterpret_cast<uintptr_t>(at);
  const size_t before = round_up(start, kHugePage) - start, after = (start + bytes) % kHugePage;
  if (before) advise(at, std::min(before, bytes), MADV_FREE);
  if (after && before < bytes) advise(at + bytes - after, after, MADV_FREE);
  advise(at, bytes, MADV_DONTNEED);
  advise(at, bytes, MADV_NOHUGEPAGE);
}

void SlotMemory::take_back(uint8_t* at, size_t bytes) {
  advise(at, bytes, MADV_HUGEPAGE);
  populate(at, bytes);
}

SlotMemory::~SlotMemory() { munmap(data_, bytes_); }

}  // namespace sharpi
