// Where the loader put the library that a kernel lives in.
#pragma once
#include <cstddef>
#include <cstdint>

namespace emulator {

struct Module {
  uintptr_t begin = 0, end = 0;  // code and data
  char* shared = nullptr;        // the calling thread's thread_local segment: __shared__ variables
  size_t shared_bytes = 0;
};

// The library with this address in it.
Module module_of(uintptr_t address);

}  // namespace emulator
