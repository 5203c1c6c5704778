// The register %globaltimer: nanoseconds of a clock that never goes back.
#pragma once
#include <cstdint>
#include <ctime>

inline int64_t emulator_nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t(now.tv_sec) * 1000000000 + now.tv_nsec;
}
