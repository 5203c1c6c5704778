// A thread's scratch memory for weights that are converted to float.
#pragma once
#include <cstdlib>
#include <new>

namespace {

// Not a std::vector: the linker might keep the copy of its code that is compiled for one
// instruction set for every machine.
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
