// What is known of memory that more than one thread may touch, and the rules that find races.
#pragma once
#include "../abi.h"
#include "block.h"

namespace emulator {

// Clock readings of the last write and of the last read of a word or a byte, and who it was. All
// zero: never touched. Readings only grow, so a cell need not be cleared between blocks or
// launches.
struct Cell {
  uint32_t written, read;
  uint16_t writer, reader;
};
static_assert(sizeof(Cell) == 12, "cpu_memory.py makes room for them");

enum class Access { kRead, kWrite, kAtomic };

constexpr size_t kWordBytes = 4;

// Whether an access of whole words repeats reads by the running thread, and nobody has touched them
// since.
inline bool is_read_again(const Cells& cells, uintptr_t address, size_t size) {
  if ((address | size) % kWordBytes) return false;
  const Cell* word = cells.words + (address / kWordBytes - cells.begin / kWordBytes);
  for (size_t i = 0; i < size / kWordBytes; i++)
    if (word[i].read != block.clock || word[i].reader != block.running->number) return false;
  return true;
}

// Where an access is: for the wording of a fault.
struct Place {
  int argument;
  size_t offset;
  uint64_t instruction;
  Site site;  // of an atomic
};

// Checks an access by the running thread and keeps it. Shared memory lives as long as a block.
// `place.offset` is that of `address`.
void note_accesses(const Cells& cells, uintptr_t address, size_t size, Access access, bool shared,
                   Place place);

}  // namespace emulator
