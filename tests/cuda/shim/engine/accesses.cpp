// The calls that -fsanitize=thread and -fsanitize=alignment put before accesses, answered here
// instead of by their own libraries, which know nothing of fibers, warps or shared memory.
#include "accesses.h"

#include <cstring>

#include "block.h"
#include "fault.h"

namespace emulator {

Regions regions;

namespace {

bool checking;

// Bytes that were touched together so far: what holds for one holds for all.
inline bool alike(const Cell* cells, size_t size) {
  return memcmp(cells, cells + 1, (size - 1) * sizeof(Cell)) == 0;
}

inline bool watched(uintptr_t address) {
  return checking && block.running && !block.running->fiber.owns(address);
}

void check(void* pointer, size_t size, Access access, uintptr_t instruction, Site site = {}) {
  const uintptr_t address = uintptr_t(pointer);
  if (!watched(address)) return;
  const bool write = access != Access::kRead;
  const Region* region = regions.find(address, size, write, instruction);
  if (!region) regions.reject(address, size, write, instruction);
  if (!block.running->has_begun && region->argument != kOwn)
    fail_access(region->argument, instruction - regions.code(),
                "%zu-byte access before earlier launches have ended", size);
  if (!region->cells) return;
  Place place{region->argument, address - region->begin, instruction - regions.code(), site};
  Cell* const cells = region->cells + place.offset;
  const bool shared = region->argument == kOwn;
  if (alike(cells, size)) {
    note_access(cells[0], access, shared, place);
    for (size_t i = 1; i < size; i++) cells[i] = cells[0];
    return;
  }
  for (size_t i = 0; i < size; i++, place.offset++) note_access(cells[i], access, shared, place);
}

}  // namespace

void check_accesses(bool on) { checking = on; }

}  // namespace emulator

using emulator::Access;

void emulator_atomic(void* address, size_t size, emulator::Site site) {
  if (uintptr_t(address) % size)
    emulator::fail(site, "an atomic of %zu bytes at an address that is no multiple", size);
  emulator::check(address, size, Access::kAtomic, uintptr_t(__builtin_return_address(0)), site);
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

#define RETURN_ADDRESS uintptr_t(__builtin_return_address(0))
#define ACCESSES(SIZE)                                                                           \
  void __tsan_read##SIZE(void* p) { emulator::check(p, SIZE, Access::kRead, RETURN_ADDRESS); }   \
  void __tsan_write##SIZE(void* p) { emulator::check(p, SIZE, Access::kWrite, RETURN_ADDRESS); } \
  void __tsan_unaligned_read##SIZE(void* p) {                                                    \
    emulator::check(p, SIZE, Access::kRead, RETURN_ADDRESS);                                     \
  }                                                                                              \
  void __tsan_unaligned_write##SIZE(void* p) {                                                   \
    emulator::check(p, SIZE, Access::kWrite, RETURN_ADDRESS);                                    \
  }                                                                                              \
  void __tsan_volatile_read##SIZE(void* p) {                                                     \
    emulator::check(p, SIZE, Access::kRead, RETURN_ADDRESS);                                     \
  }                                                                                              \
  void __tsan_volatile_write##SIZE(void* p) {                                                    \
    emulator::check(p, SIZE, Access::kWrite, RETURN_ADDRESS);                                    \
  }

#pragma GCC visibility push(default)
extern "C" {
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
void __tsan_read_range(void* p, size_t size) {
  emulator::check(p, size, Access::kRead, RETURN_ADDRESS);
}
void __tsan_write_range(void* p, size_t size) {
  emulator::check(p, size, Access::kWrite, RETURN_ADDRESS);
}
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
