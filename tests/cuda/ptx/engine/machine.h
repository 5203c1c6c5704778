// The state of one block of threads that runs PTX, and the form of a decoded instruction.
//
// All threads of a block are lanes of one machine. A register is a row of 64-bit words, one a lane;
// immediates, special registers and addresses of variables are rows, too, that nothing writes.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace ptx {

constexpr int kWarp = 32;
// Generic addresses of shared and local memory: windows that no host address lies in.
constexpr uint64_t kSharedWindow = uint64_t(1) << 60;
constexpr uint64_t kLocalWindow = uint64_t(1) << 61;

enum class Type : uint8_t {
  s8,
  u8,
  b8,
  s16,
  u16,
  b16,
  s32,
  u32,
  b32,
  s64,
  u64,
  b64,
  f16,
  f16x2,
  bf16,
  bf16x2,
  f32,
  f64,
  pred,
  none
};
enum class Space : uint8_t { generic, global, shared, local, param };

struct Machine;
struct Op;

// An instruction as parser and lowering hand it over.
struct Ins {
  int32_t op;         // index into the decoded operations
  int32_t predicate;  // row, or -1
  int32_t negated;    // whether lanes run it whose predicate is false
  int32_t inverted;   // a bit for each operand that was written as !p
  int32_t num;        // of operands
  int32_t a[19];      // rows; offsets of addresses and targets of branches as they are
};

using Run = void (*)(Machine&, const Op&, const Ins&);
using WarpRun = void (*)(Machine&, const Op&, const Ins&, int base, uint32_t lanes);
enum class Kind : uint8_t { plain, warp, branch, end, barrier, trap };

// A decoded opcode: what runs it, and its modifiers.
struct Op {
  Kind kind = Kind::plain;
  Run run = nullptr;
  WarpRun warp_run = nullptr;
  int mask_operand = -1;  // of warp operations: the operand with their lanes; -1: the whole warp
  std::string name;
  std::vector<std::string> parts;
  std::vector<Type> types;
  bool ftz = false, sat = false;
  int rounding = 0;  // as fesetround takes it
  Space space = Space::generic;
  int vector = 1;
  int compare = 0, logic = 0;  // of setp; logic: 0, '&', '|' or '^'

  bool has(const char* part) const {
    for (const auto& each : parts)
      if (each == part) return true;
    return false;
  }
  Type type() const { return types.back(); }
};

struct Region {
  uint64_t begin, end;
  int32_t argument;
  uint32_t writable;
};

// What the engine knows of a byte of shared memory.
struct SharedByte {
  uint32_t write_epoch, write_clock, read_epoch, read_clock;
  uint16_t writer, reader;  // lanes
  uint8_t exists, written, has_reader, many_readers, many_warps;
};

enum class State : uint8_t { ready, at_barrier, at_warp_operation, done };

struct Failure {
  std::string text;
  int pc, lane;
};

struct Machine {
  int lanes, pc;
  std::vector<uint64_t> registers;
  std::vector<int> active;  // lanes that run the instruction
  std::vector<int> pcs;
  std::vector<State> states;
  std::vector<uint8_t> has_begun;  // whether the lane may touch what earlier launches wrote
  const Ins* program;
  const Op* ops;

  std::vector<uint8_t> params, shared, local;
  std::vector<SharedByte> shared_bytes;
  size_t local_bytes;
  std::vector<Region> regions;
  size_t last_region = 0;
  uint32_t epoch;               // barriers that the block has passed
  std::vector<uint32_t> clock;  // of each warp: barriers of the block and of the warp
  uint64_t executed = 0;

  uint64_t* row(int index) { return registers.data() + size_t(index) * lanes; }

  template <class Body>
  void each(Body body) {
    const int count = int(active.size());
    if (count == lanes) {
      for (int lane = 0; lane < lanes; lane++) body(lane);
    } else {
      for (int i = 0; i < count; i++) body(active[i]);
    }
  }

  [[noreturn]] void fail(const std::string& text, int lane) const { throw Failure{text, pc, lane}; }

  // The bytes at an address, checked: bounds, alignment, permission and, in shared memory, races.
  enum class Access { read, write, both };
  uint8_t* at(Space space, uint64_t address, size_t size, Access access, int lane);

 private:
  uint8_t* shared_at(uint64_t address, size_t size, Access access, int lane);
  uint8_t* global_at(uint64_t address, size_t size, Access access, int lane);
  void note(SharedByte& byte, uint64_t address, Access access, int lane);
};

template <class T>
T get(uint64_t word) {
  T value;
  memcpy(&value, &word, sizeof(T));
  return value;
}

// Signed values are kept with their sign in all 64 bits, as wider registers want them.
template <class T>
void put(uint64_t& word, T value) {
  if constexpr (T(-1) < T(0) && T(0.5) == T(0)) {
    word = uint64_t(int64_t(value));
  } else {
    word = 0;
    memcpy(&word, &value, sizeof(T));
  }
}

int bytes_of(Type type);
bool is_signed(Type type);

// Each returns whether it knows the opcode; `op.parts` and `op.types` are set.
bool decode_integers(Op& op);
bool decode_bits(Op& op);
bool decode_floats(Op& op);
bool decode_compares(Op& op);
bool decode_conversions(Op& op);
bool decode_memory(Op& op);
bool decode_atomics(Op& op);
bool decode_control(Op& op);
bool decode_warp(Op& op);
bool decode_tensor_cores(Op& op);
// Whether every part behind the first is a type or one of these words.
bool only(const Op& op, std::initializer_list<const char*> words);

// Runs the threads of a block, whose registers and memories are set, to their ends.
void run_block(Machine& machine);

}  // namespace ptx
