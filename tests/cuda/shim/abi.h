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

struct Cell;  // what is known of a word or a byte: the engine's

// The cells of some memory, whose first byte is at `begin`: one for each aligned word of four bytes
// and, for words whose bytes were touched apart, one for each byte. All null where nobody writes.
struct Cells {
  uintptr_t begin;
  Cell *words, *bytes;
};

// Bytes that a kernel may touch.
struct Region {
  uintptr_t begin, end;
  Cells cells;
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

// Where the running thread is in its grid.
struct Here {
  unsigned thread, block[3], block_size, grid[3];
};

// One thread's run through a kernel.
struct Body {
  void (*call)(void* data);
  void* data;
};

}  // namespace emulator

#pragma GCC visibility push(default)
extern "C" {
void emulator_run(const emulator::Request* request, emulator::Body body);

// The place of the running thread.
extern emulator::Here emulator_here;
__attribute__((const)) void* emulator_dynamic_shared();

int emulator_barrier(emulator::Vote vote, int value, emulator::Site site);
// Lanes of `mask` give `size` bytes (up to 16) and take those of lane `source`.
void emulator_exchange(unsigned mask, const void* given, void* taken, int size, int source,
                       emulator::Site site);
// The same in segments of `width` lanes; a lane whose source lies outside its own takes its own.
void emulator_shuffle(unsigned mask, const void* given, void* taken, int size, emulator::Take take,
                      int operand, int width, emulator::Site site);
// All 32 lanes give a number and take the sum or the maximum over their segment of `width` lanes,
// in the order of the kernels' loops of shuffles.
float emulator_sum_floats(float value, int width, emulator::Site site);
float emulator_max_floats(float value, int width, emulator::Site site);
int emulator_max_integers(int value, int width, emulator::Site site);
// All 32 lanes give an address, and take those of `count` other lanes.
void emulator_exchange_addresses(const void* given, const void** taken, const int* sources,
                                 int count, emulator::Site site);
// Adds a lane's part of mma.m16n8k16 (num_bytes 16) or m16n8k32 of signed bytes to c, and of
// m16n8k16 of halves. a: two or four words, b: one or two, c: four.
void emulator_add_byte_products(const void* a, const void* b, int num_bytes, int* c,
                                emulator::Site site);
void emulator_add_half_products(const void* a, const void* b, float* c, emulator::Site site);
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
