// What the kernels, compiled as any C++, and the engine that runs them have in common.
#pragma once
#include <cstddef>
#include <cstdint>

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

namespace emulator {

// A place in the source. As a default argument, `here()` is the place of the call.
struct Site {
  const char* file;
  int line;
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

struct Cell;  // what is known of one byte: the engine's

// Bytes that a kernel may touch. `cells` is null where nobody writes in this launch.
struct Region {
  uintptr_t begin, end;
  Cell* cells;
  int argument;  // its number; kReached for memory found through a table; kOwn for the kernel's own
  unsigned writable;
};
constexpr int kReached = -1, kOwn = -2;

// The first thing that went wrong in a launch; `what` is empty where nothing did.
struct Fault {
  char what[256];
  char file[64];
  int line;
  int argument;
  uint64_t instruction;  // offset in the kernel's library, 0 where `file` and `line` say it
  unsigned block[3], thread;
};

// `order`: in which order a block's threads run: 0 ascending, 1 descending, else the seed of a
// random one.
struct Request {
  unsigned grid[3], block, shared_bytes, order, check, num_regions;
  unsigned is_dependent;  // it may begin before earlier launches have ended
  const Region* regions;
  Fault* fault;
};

enum class Vote { kNone, kCount, kAll, kAny };

// Which lane of its segment a lane of a shuffle takes from.
enum class Take { kLane, kXor, kDown, kUp };

// One thread's run through a kernel.
struct Body {
  void (*call)(void* data);
  void* data;
};

}  // namespace emulator

#pragma GCC visibility push(default)
extern "C" {
void emulator_run(const emulator::Request* request, emulator::Body body);

// A thread's own place never changes while it runs: calls may be merged.
__attribute__((const)) uint3 emulator_thread_index();
__attribute__((const)) uint3 emulator_block_index();
__attribute__((const)) dim3 emulator_block_size();
__attribute__((const)) dim3 emulator_grid_size();
__attribute__((const)) void* emulator_dynamic_shared();

int emulator_barrier(emulator::Vote vote, int value, emulator::Site site);
// Lanes of `mask` give `size` bytes (up to 16) and take those of lane `source`.
void emulator_exchange(unsigned mask, const void* given, void* taken, int size, int source,
                       emulator::Site site);
// The same in segments of `width` lanes; a lane whose source lies outside its own takes its own.
void emulator_shuffle(unsigned mask, const void* given, void* taken, int size, emulator::Take take,
                      int operand, int width, emulator::Site site);
// All 32 lanes give `size` bytes (up to 32); `taken` then points to what each gave, until the
// calling lane's next operation.
void emulator_meet_warp(const void* given, int size, unsigned char** taken, emulator::Site site);
unsigned emulator_ballot(unsigned mask, int value, emulator::Site site);
void emulator_sync_warp(unsigned mask, emulator::Site site);
void emulator_atomic(void* address, size_t size, emulator::Site site);
void emulator_wait_for_last_launch();
void emulator_trap(emulator::Site site);
// Orders what the calling thread did, and what it saw, before what it publishes later.
void emulator_fence();
// A block has done its part, by one thread after a barrier; what it did before its last fence
// counts. All threads of the last one join those that came before, and so may those that wait for
// them.
void emulator_arrive(const void* counter);
void emulator_join(const void* counter);
}
#pragma GCC visibility pop
