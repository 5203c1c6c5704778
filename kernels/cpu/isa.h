// The instruction sets that this library has kernels for, and those that this machine can run.
//
// The files of a set are compiled with instructions that the machine may lack. So they export
// nothing but tables of functions, made by the compiler (constinit): nothing of a set runs when the
// library is loaded, and nothing of it can be called before `supported` was asked. Everything else
// in these files has internal linkage, since the linker keeps one copy of an inline function, and
// could keep theirs for all callers. tests/kernels/test_instruction_sets.py disassembles the
// library to see that this holds.
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

// By name ("avx512_vbmi", "avx512_vnni", "avx2", "neon", "portable"), whether this machine can run
// it or not; null for a set that this library was not built with.
const Isa* named_isa(const char* name);

// The same, or the best for null; null where this machine cannot run it.
const Isa* find_isa(const char* name);

}  // namespace sharpi
