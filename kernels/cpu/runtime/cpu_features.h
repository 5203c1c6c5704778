// The instructions that this machine's CPU and operating system offer, by the compiler's names.
#pragma once
#include <span>
#include <string>

namespace sharpi {

// An extension of an instruction set, and a function that says whether this machine has it.
struct CpuFeature {
  const char* name;
  bool (*present)();
};

// The features that the kernels of an instruction set are compiled for: CMakeLists.txt passes the
// same extensions. All are empty where the library is not built for x86-64.
using CpuFeatures = std::span<const CpuFeature>;
CpuFeatures sse41_features();
CpuFeatures avx2_features();
CpuFeatures avx_vnni_features();
CpuFeatures avx512_vnni_features();
CpuFeatures avx512_vbmi_features();
CpuFeatures avx512_bf16_features();

bool all_present(CpuFeatures features);
// Returns the names of the features that this machine lacks, separated by ", ".
std::string missing(CpuFeatures features);

}  // namespace sharpi
