// Vector operations for AVX-512.
#if defined(__AVX512F__)
#include "attention/attend_page_q8_vnni.h"
#include "vector_ops_impl.h"

constinit const sharpi::VectorOps sharpi::kAvx512VectorOps = [] {
  VectorOps all = make_vector_ops("avx512");
  all.kv[int(KvLayout::Q8Rounded)] = {takes_whole_numbers, store_key_q8, store_value_q8,
                                      prepare_rounded, attend_as<WholeNumberAttention>};
  return all;
}();
#endif
