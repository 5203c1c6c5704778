// The memory that a launch may touch.
#pragma once
#include <vector>

#include "../abi.h"

namespace emulator {

class Regions {
 public:
  // For a new launch, whose code begins at `code`.
  void reset(const Region* regions, unsigned count, uintptr_t code);
  void add(const Region& region);
  void sort();

  // The region that holds all the bytes and allows the access, else null. An instruction mostly
  // stays in one region: the last that it hit is tried first.
  const Region* find(uintptr_t address, size_t size, bool write, uintptr_t instruction) {
    const Region*& recent = recent_[place_of(instruction)];
    if (!recent || !allows(*recent, address, size, write)) recent = search(address, size, write);
    return recent;
  }

  // The region that this instruction, or one that shares its place, hit last; null for none.
  const Region* recent(uintptr_t instruction) const { return recent_[place_of(instruction)]; }

  static bool allows(const Region& region, uintptr_t address, size_t size, bool write) {
    return address >= region.begin && address + size <= region.end && (region.writable || !write);
  }

  // Ends the running thread, saying what is wrong with an access that no region allows.
  [[noreturn]] void reject(uintptr_t address, size_t size, bool write, uintptr_t instruction) const;

  uintptr_t code() const { return code_; }

 private:
  static constexpr size_t kRecent = 256;
  static size_t place_of(uintptr_t instruction) { return instruction / 4 % kRecent; }
  const Region* search(uintptr_t address, size_t size, bool write) const;

  std::vector<Region> regions_;          // ascending by begin
  std::vector<uintptr_t> furthest_end_;  // of the regions up to here: arguments may overlap
  const Region* recent_[kRecent] = {};
  uintptr_t code_ = 0;
};

}  // namespace emulator
