// The instruction sets that this library has kernels for, and those that this machine can run.
//
// The files of a set are compiled with instructions that the machine may lack. Therefore they
// export nothing but tables of functions that the compiler initialises (constinit): no code of a
// set runs when the library is loaded, and none can be called before `supported` was checked.
// Everything else in these files has internal linkage, because the linker keeps one copy of an
// inline function and could keep theirs for all callers. tests/kernels/test_instruction_sets.py
// disassembles the library to check this.
#pragma once
#include "matmul/matmul.h"
#include "runtime/cpu_features.h"
#include "runtime/int8_peak.h"
#include "vector/vector_ops.h"

namespace sharpi {

struct Isa {
  const char* name;
  CpuFeatures features;
  const MatmulKernels* matmul;
  const VectorOps* vectors;
  const Int8Loop* int8_loop;

  bool supported() const { return all_present(features); }
};

// Returns the set of a name ("avx512_vbmi", "avx512_vnni", "avx_vnni", "avx2", "sse41", "neon",
// "portable"), even if this machine cannot run it; null for a set that this library was not built
// with.
const Isa* named_isa(const char* name);

// Returns the set of a name, or for null the best one; null where this machine cannot run it.
const Isa* find_isa(const char* name);

}  // namespace sharpi
