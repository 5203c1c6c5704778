// Scratch for weights made float, of one thread.
#pragma once
#include <cstdlib>
#include <new>

namespace {

// Not a std::vector: of its code, compiled for one instruction set, the linker might keep that copy
// for every machine.
struct FloatRows {
  float* data = nullptr;
  size_t size = 0;

  float* at_least(size_t n) {
    if (n > size) {
      free(data);
      data = static_cast<float*>(malloc(n * sizeof(float)));
      if (!data) throw std::bad_alloc();
      size = n;
    }
    return data;
  }
  ~FloatRows() { free(data); }
};

}  // namespace
