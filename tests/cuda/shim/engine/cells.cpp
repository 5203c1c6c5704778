// Races: two accesses of different threads, one of them a write, and nothing that orders them.
#include "cells.h"

#include <algorithm>
#include <cstdio>

#include "block.h"
#include "fault.h"
#include "joined.h"

namespace emulator {
namespace {

// A reader or writer is a thread's number, or one of these; a plain write has one thread.
constexpr uint16_t kLanes = 0x1000;        // + warp: several lanes of it
constexpr uint16_t kWarps = 0x2000;        // several warps
constexpr uint16_t kOtherBlocks = 0x3000;  // another block of this launch, perhaps among others
constexpr uint16_t kAtomically = 0x8000;

bool of_running_warp(uint16_t who) {
  const unsigned warp = block.running->warp();
  return who < kLanes ? who / kWarpSize == warp : who == kLanes + warp;
}

// Whether what `who` did at `stamp`, in this block, comes before what the running thread does now.
bool ordered(uint32_t stamp, uint16_t who) {
  if (stamp <= block.synced || who == block.running->number) return true;
  return of_running_warp(who) && stamp <= block.warps[block.running->warp()].synced;
}

const char* name(Access access) {
  return access == Access::kRead ? "read" : access == Access::kWrite ? "write" : "atomic";
}

[[noreturn]] void race(const char* before, uint16_t who, uint32_t stamp, Access now,
                       const Place& place) {
  char whose[32] = "another block";
  const bool here = stamp > block.began && who != kOtherBlocks;
  if (here && who < kLanes) snprintf(whose, sizeof whose, "thread %u", who);
  if (here && who >= kLanes)
    snprintf(whose, sizeof whose, who == kWarps ? "several warps" : "several lanes");
  const char* format = "race at offset %zu: a %s, a %s of %s before, and nothing between them";
  if (place.site.file) fail(place.site, format, place.offset, name(now), before, whose);
  fail_access(place.argument, place.instruction, format, place.offset, name(now), before, whose);
}

// Who is to be named for an access of `who` at `stamp` and for the running thread's, both to be
// kept as one.
uint16_t merged(uint32_t stamp, uint16_t who, uint32_t floor) {
  const Thread& self = *block.running;
  if (stamp > floor && (who == kOtherBlocks || stamp <= block.began)) return kOtherBlocks;
  if (stamp <= block.synced || who == self.number) return uint16_t(self.number);
  if (!of_running_warp(who)) return kWarps;
  const bool before = stamp <= block.warps[self.warp()].synced;
  return uint16_t(before ? self.number : kLanes + self.warp());
}

void check_last_write(const Cell& cell, Access access, const Place& place) {
  const uint16_t who = cell.writer & ~kAtomically;
  if (cell.writer & kAtomically && access == Access::kAtomic) return;
  if (cell.written > block.began && who != kOtherBlocks && ordered(cell.written, who)) return;
  if (is_joined(cell.written, who == kOtherBlocks)) return;
  race("write", who, cell.written, access, place);
}

void check_last_read(const Cell& cell, Access access, const Place& place) {
  if (cell.read > block.began && cell.reader != kOtherBlocks && ordered(cell.read, cell.reader))
    return;
  if (is_joined(cell.read, cell.reader == kOtherBlocks)) return;
  race("read", cell.reader, cell.read, access, place);
}

// Checks an access of the word or byte of one cell, and keeps it.
void note(Cell& cell, Access access, bool shared, const Place& place) {
  // Read by this thread and by nobody since, nor written.
  if (access == Access::kRead && cell.read == block.clock && cell.reader == block.running->number)
    return;
  const uint32_t floor = shared ? block.began : block.launch_began;  // older readings mean nothing
  if (cell.written > floor) {
    check_last_write(cell, access, place);
  } else if (shared && access != Access::kWrite) {
    const char* format = "shared memory is read before it is written, offset %zu";
    if (place.site.file) fail(place.site, format, place.offset);
    fail_access(place.argument, place.instruction, format, place.offset);
  }
  if (access == Access::kRead) {
    cell.reader = merged(cell.read, cell.reader, floor);
    cell.read = block.clock;
    return;
  }
  if (cell.read > floor) check_last_read(cell, access, place);
  uint16_t writer = uint16_t(block.running->number);
  if (access == Access::kAtomic) {
    const bool again = cell.writer & kAtomically;
    writer =
        kAtomically | (again ? merged(cell.written, cell.writer & ~kAtomically, floor) : writer);
  }
  cell = {block.clock, 0, writer, 0};
}

// The reader of a word whose bytes have cells of their own; that of the word says no more.
constexpr uint16_t kApart = 0xffff;

bool is_apart(const Cell& word) { return word.reader == kApart; }

// Gives each byte of a word the word's cell.
void part(Cell& word, Cell* bytes) {
  for (size_t i = 0; i < kWordBytes; i++) bytes[i] = word;
  word.reader = kApart;
}

void note_bytes(Cell* bytes, size_t count, Access access, bool shared, Place place) {
  for (size_t i = 0; i < count; i++, place.offset++) note(bytes[i], access, shared, place);
}

// A write to all bytes of a word joins them again.
void note_word(Cell& word, Cell* bytes, Access access, bool shared, const Place& place) {
  if (!is_apart(word)) return note(word, access, shared, place);
  note_bytes(bytes, kWordBytes, access, shared, place);
  if (access == Access::kWrite) word = bytes[0];
}

}  // namespace

void note_accesses(const Cells& cells, uintptr_t address, size_t size, Access access, bool shared,
                   Place place) {
  const uintptr_t first_word = cells.begin / kWordBytes;
  for (const uintptr_t end = address + size; address < end;) {
    const size_t inside = address % kWordBytes;
    const size_t count = std::min<size_t>(kWordBytes - inside, end - address);
    Cell& word = cells.words[address / kWordBytes - first_word];
    Cell* const bytes = cells.bytes + (address - inside - first_word * kWordBytes);
    if (count == kWordBytes) {
      note_word(word, bytes, access, shared, place);
    } else {
      if (!is_apart(word)) part(word, bytes);
      note_bytes(bytes + inside, count, access, shared, place);
    }
    address += count, place.offset += count;
  }
}

}  // namespace emulator
