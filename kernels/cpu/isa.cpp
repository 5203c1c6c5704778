#include "isa.h"

#include <cstring>

namespace sharpi {
namespace {

bool machine_has(const char* name) {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
                    __builtin_cpu_supports("bmi2");
  if (!strcmp(name, "avx2")) return avx2;
  const bool vnni = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                    __builtin_cpu_supports("avx512vnni");
  if (!strcmp(name, "avx512_vnni")) return vnni;
  if (!strcmp(name, "avx512_vbmi")) return vnni && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("gfni");
#endif
  return !strcmp(name, "neon") || !strcmp(name, "portable");
}

// Making this table takes its instructions already.
const MatmulKernels* vbmi_matmul() { return machine_has("avx512_vbmi") ? avx512_vbmi_matmul() : nullptr; }

// With BF16 (Zen 4, Cooper Lake and later), where the machine has it.
const VectorOps* best_avx512_vector_ops() {
#if defined(__x86_64__)
  if (avx512_bf16_vector_ops() && __builtin_cpu_supports("avx512bf16")) return avx512_bf16_vector_ops();
#endif
  return avx512_vector_ops();
}

}  // namespace

const Isa* find_isa(const char* name) {
  static const Isa all[] = {
      {"avx512_vbmi", vbmi_matmul(), best_avx512_vector_ops()},
      {"avx512_vnni", avx512_vnni_matmul(), best_avx512_vector_ops()},
      {"avx2", avx2_matmul(), avx2_vector_ops()},
      {"neon", neon_matmul(), portable_vector_ops()},
      {"portable", portable_matmul(), portable_vector_ops()},
  };
  for (const Isa& isa : all)
    if ((!name || !strcmp(name, isa.name)) && isa.matmul && isa.vectors && machine_has(isa.name)) return &isa;
  return nullptr;
}

}  // namespace sharpi
