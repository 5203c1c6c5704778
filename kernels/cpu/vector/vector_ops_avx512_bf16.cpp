// Attention with pairs of bfloat16, for AVX-512 with BF16.
#include "vector_ops.h"

#if defined(__AVX512BF16__)
#include "attention/attend_page_bf16.h"

constinit const sharpi::KvOps sharpi::kAvx512Bf16Pairs = {
    takes_pairs, store_key_pairs, store_value_pairs, prepare_pairs, attend_as<PairedAttention>};
#endif
