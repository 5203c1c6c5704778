#include "isa.h"

#include <cstring>
#include <span>

namespace sharpi {
namespace {

#if defined(__x86_64__)
VectorOps with_bf16_attention(VectorOps ops) {
  ops.name = "avx512_bf16";
  ops.keys[int(KvLayout::Bf16Pairs)] = kAvx512PairedKeys;
  ops.values[int(KvLayout::Bf16Pairs)] = kAvx512PairedValues;
  return ops;
}

// Processors with AVX-512 VNNI may have BF16 too (Zen 4, Cooper Lake and later).
const VectorOps* best_avx512_vector_ops() {
  static const VectorOps with_bf16 = with_bf16_attention(kAvx512VectorOps);
  return all_present(avx512_bf16_features()) ? &with_bf16 : &kAvx512VectorOps;
}

VectorOps with_avx_vnni_loops(VectorOps ops) {
  ops.name = "avx_vnni";
  for (int type = int(KvType::F16) + 1; type < kNumKvTypes; type++) {
    const int layout = kv_layout(KvType(type), true);
    const RoundedLoops& loops = KvType(type) == KvType::Q4_0 ? kAvxVnniPackedLoops : kAvxVnniLoops;
    ops.keys[layout].scores = loops.scores, ops.values[layout].add = loops.add;
  }
  return ops;
}

const VectorOps* avx_vnni_vector_ops() {
  static const VectorOps ops = with_avx_vnni_loops(kAvx2VectorOps);
  return &ops;
}
#endif

// All instruction sets, best first.
std::span<const Isa> all_isas() {
  static const Isa all[] = {
#if defined(__x86_64__)
      {"avx512_vbmi", avx512_vbmi_features(), &kAvx512VbmiMatmul, best_avx512_vector_ops(),
       &kAvx512VnniInt8Loop},
      {"avx512_vnni", avx512_vnni_features(), &kAvx512VnniMatmul, best_avx512_vector_ops(),
       &kAvx512VnniInt8Loop},
      {"avx_vnni", avx_vnni_features(), &kAvxVnniMatmul, avx_vnni_vector_ops(), &kAvxVnniInt8Loop},
      {"avx2", avx2_features(), &kAvx2Matmul, &kAvx2VectorOps, &kAvx2Int8Loop},
      {"sse41", sse41_features(), &kSse41Matmul, &kSse41VectorOps, &kSse41Int8Loop},
#elif defined(__aarch64__)
      {"neon", {}, neon_matmul(), &kPortableVectorOps, &kPortableInt8Loop},
#endif
      {"portable", {}, &kPortableMatmul, &kPortableVectorOps, &kPortableInt8Loop},
  };
  return all;
}

}  // namespace

const Isa* named_isa(const char* name) {
  for (const Isa& isa : all_isas())
    if (!strcmp(name, isa.name)) return &isa;
  return nullptr;
}

const Isa* find_isa(const char* name) {
  for (const Isa& isa : all_isas())
    if ((!name || !strcmp(name, isa.name)) && isa.supported()) return &isa;
  return nullptr;
}

}  // namespace sharpi
