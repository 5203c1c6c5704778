// Vector operations for AVX-512 with BF16: those of AVX-512, and attention in pairs.
#include "vector_ops.h"

#if defined(__AVX512BF16__)
#include "attend_page_bf16.h"

const sharpi::VectorOps* sharpi::avx512_bf16_vector_ops() {
  static const VectorOps ops = [] {
    VectorOps all = *avx512_vector_ops();
    all.name = "avx512_bf16";
    all.kv[int(KvWay::Bf16Pairs)] = {takes_pairs, store_key_pairs, store_value_pairs, prepare_pairs,
                                     attend_as<PairedAttention>};
    return all;
  }();
  return &ops;
}
#else
const sharpi::VectorOps* sharpi::avx512_bf16_vector_ops() { return nullptr; }
#endif
