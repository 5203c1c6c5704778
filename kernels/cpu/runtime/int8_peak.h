// Loops of int8 products that never wait for memory: the peak that the kernels of an instruction
// set are compared with.
#pragma once
#include <cstdint>

namespace sharpi {

struct Int8Loop {
  double operations;  // per round; a product and its sum are two
  void (*run)(int64_t rounds);
};

// Tables, as in matmul.h: the second group exists on x86-64 only.
extern const Int8Loop kPortableInt8Loop;
extern const Int8Loop kSse41Int8Loop, kAvx2Int8Loop, kAvxVnniInt8Loop, kAvx512VnniInt8Loop;

}  // namespace sharpi
