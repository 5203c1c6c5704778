// The calls that -fsanitize=thread and -fsanitize=alignment put before accesses, answered here
// instead of by their own libraries, which know nothing of fibers, warps or shared memory.
#include "accesses.h"

#include "block.h"
#include "fault.h"

namespace emulator {

Regions regions;

namespace {

bool checking;

inline bool watched(uintptr_t address) {
  return checking && block.running && !block.running->fiber->owns(address);
}

// An access of the running thread: `instruction` is the place in the kernel's library.
struct Touch {
  uintptr_t address;
  size_t size;
  Access access;
  uintptr_t instruction;
  Site site{};
};

[[gnu::noinline]] void check_at_length(const Touch& touch) {
  const bool write = touch.access != Access::kRead;
  const Region* region = regions.find(touch.address, touch.size, write, touch.instruction);
  if (!region) regions.reject(touch.address, touch.size, write, touch.instruction);
  const uint64_t offset = touch.instruction - regions.code();
  if (!block.running->has_begun && region->argument != kOwn)
    fail_access(region->argument, offset, "%zu-byte access before earlier launches have ended",
                touch.size);
  if (!region->cells.words) return;
  note_accesses(region->cells, touch.address, touch.size, touch.access, region->argument == kOwn,
                {region->argument, touch.address - region->begin, offset, touch.site});
}

// Most accesses are to the thread's own variables, to memory that nobody writes, or repeat a read.
inline void check(const Touch& touch) {
  if (!watched(touch.address)) return;
  const Region* region = regions.recent(touch.instruction);
  const bool is_known = region && block.running->has_begun && touch.access == Access::kRead &&
                        Regions::allows(*region, touch.address, touch.size, false);
  if (is_known && (!region->cells.words || is_read_again(region->cells, touch.address, touch.size)))
    return;
  check_at_length(touch);
}

}  // namespace

void check_accesses(bool on) { checking = on; }

}  // namespace emulator

using emulator::Access;

void emulator_atomic(void* address, size_t size, emulator::Site site) {
  if (uintptr_t(address) % size)
    emulator::fail(site, "an atomic of %zu bytes at an address that is no multiple", size);
  const uintptr_t caller = uintptr_t(__builtin_return_address(0));
  emulator::check({uintptr_t(address), size, Access::kAtomic, caller, site});
}

// What the compiler calls, with its own layouts.
struct SourceLocation {
  const char* file;
  unsigned line, column;
};
struct TypeMismatch {
  SourceLocation location;
  void* type;
  unsigned char log_alignment, kind;
};

#define CHECK(SIZE, ACCESS) \
  emulator::check({uintptr_t(p), SIZE, ACCESS, uintptr_t(__builtin_return_address(0))})
#define ACCESSES(SIZE)                                                        \
  void __tsan_read##SIZE(void* p) { CHECK(SIZE, Access::kRead); }             \
  void __tsan_write##SIZE(void* p) { CHECK(SIZE, Access::kWrite); }           \
  void __tsan_unaligned_read##SIZE(void* p) { CHECK(SIZE, Access::kRead); }   \
  void __tsan_unaligned_write##SIZE(void* p) { CHECK(SIZE, Access::kWrite); } \
  void __tsan_volatile_read##SIZE(void* p) { CHECK(SIZE, Access::kRead); }    \
  void __tsan_volatile_write##SIZE(void* p) { CHECK(SIZE, Access::kWrite); }

#pragma GCC visibility push(default)
extern "C" {
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
void __tsan_read_range(void* p, size_t size) { CHECK(size, Access::kRead); }
void __tsan_write_range(void* p, size_t size) { CHECK(size, Access::kWrite); }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}

void __ubsan_handle_type_mismatch_v1(TypeMismatch* mismatch, uintptr_t address) {
  const uintptr_t alignment = uintptr_t(1) << mismatch->log_alignment;
  const emulator::Site site{mismatch->location.file, int(mismatch->location.line)};
  if (emulator::block.running)
    emulator::fail(site, "misaligned access: the address is %zu past a multiple of %zu",
                   size_t(address % alignment), size_t(alignment));
}
void __ubsan_handle_pointer_overflow(void*, uintptr_t, uintptr_t) {}
}
#pragma GCC visibility pop
