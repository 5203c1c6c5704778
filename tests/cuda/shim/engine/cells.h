// What is known of each byte that more than one thread may touch, and the rules that find races.
#pragma once
#include "../abi.h"

namespace emulator {

// Clock readings of the last write and of the last read, and who it was. All zero: never touched.
// Readings only grow, so a cell need not be cleared between blocks or launches.
struct Cell {
  uint32_t written, read;
  uint16_t writer, reader;
};
static_assert(sizeof(Cell) == 12, "cpu_memory.py makes room for them");

enum class Access { kRead, kWrite, kAtomic };

// Where an access is: for the wording of a fault.
struct Place {
  int argument;
  size_t offset;
  uint64_t instruction;
  Site site;  // of an atomic
};

// Checks one byte's access by the running thread and keeps it. Shared memory lives as long as a
// block.
void note_access(Cell& cell, Access access, bool shared, const Place& place);

}  // namespace emulator
