// The instruction sets this machine has, and the kernels that go with one.
#pragma once
#include "matmul.h"
#include "vector_ops.h"

namespace sharpi {

struct Isa {
  const char* name;
  const MatmulKernels* matmul;
  const VectorOps* vectors;
};

// By name ("avx512_vbmi", "avx512_vnni", "avx2", "neon", "portable"), or the best for null; null where the machine lacks it.
const Isa* find_isa(const char* name);

}  // namespace sharpi
