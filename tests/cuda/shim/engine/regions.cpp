// Finds the region of an access, and words the fault where there is none.
#include "regions.h"

#include <algorithm>

#include "fault.h"

namespace emulator {

void Regions::reset(const Region* regions, unsigned count, uintptr_t code) {
  regions_.assign(regions, regions + count);
  code_ = code;
}

void Regions::add(const Region& region) { regions_.push_back(region); }

void Regions::sort() {
  std::sort(regions_.begin(), regions_.end(),
            [](const Region& a, const Region& b) { return a.begin < b.begin; });
  furthest_end_.clear();
  for (const Region& region : regions_)
    furthest_end_.push_back(std::max(region.end, furthest_end_.empty() ? 0 : furthest_end_.back()));
  std::fill(std::begin(recent_), std::end(recent_), nullptr);
}

const Region* Regions::search(uintptr_t address, size_t size, bool write) const {
  const auto after =
      std::upper_bound(regions_.begin(), regions_.end(), address,
                       [](uintptr_t value, const Region& region) { return value < region.begin; });
  for (size_t i = after - regions_.begin(); i-- > 0 && furthest_end_[i] > address;)
    if (allows(regions_[i], address, size, write)) return &regions_[i];
  return nullptr;
}

void Regions::reject(uintptr_t address, size_t size, bool write, uintptr_t instruction) const {
  const char* what = write ? "write" : "read";
  for (const Region& region : regions_) {
    if (address < region.begin || address >= region.end) continue;
    const size_t offset = address - region.begin, room = region.end - address;
    if (room >= size)
      fail_access(region.argument, instruction - code_,
                  "%zu-byte write at offset %zu of what is only read", size, offset);
    fail_access(region.argument, instruction - code_,
                "%zu-byte %s at offset %zu goes %zu bytes too far", size, what, offset,
                size - room);
  }
  const auto before = [&](const Region& region) {
    return region.end <= address && region.argument >= kReached;
  };
  const Region* nearest = nullptr;
  for (const Region& region : regions_)
    if (before(region) && (!nearest || region.end > nearest->end)) nearest = &region;
  if (nearest && address - nearest->end < 4096)
    fail_access(nearest->argument, instruction - code_,
                "%zu-byte %s begins %zu bytes behind the end", size, what,
                size_t(address - nearest->end));
  fail_access(kOwn, instruction - code_, "%zu-byte %s outside every argument", size, what);
}

}  // namespace emulator
