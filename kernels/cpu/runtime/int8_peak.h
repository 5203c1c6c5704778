// Loops of int8 products that no memory holds up: what the kernels of an instruction set are held
// against.
#pragma once
#include <cstdint>

namespace sharpi {

struct Int8Loop {
  double operations;  // of one round; a product and its sum are two
  void (*run)(int64_t rounds);
};

// Tables, as in matmul.h: the second group is there on x86-64 alone.
extern const Int8Loop kPortableInt8Loop;
extern const Int8Loop kAvx2Int8Loop, kAvx512VnniInt8Loop;

}  // namespace sharpi
