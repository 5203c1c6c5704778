// Attention with pairs of bfloat16, for AVX-512 with BF16.
#include "vector_ops.h"

#if defined(__AVX512BF16__)
#include "attention/attend_page_bf16.h"

constinit const sharpi::KeyOps sharpi::kAvx512PairedKeys = {takes_pairs, store_key_pairs,
                                                            prepare_pairs, nullptr, pair_scores};
constinit const sharpi::ValueOps sharpi::kAvx512PairedValues = {takes_pairs, store_value_pairs,
                                                                nullptr, pair_values};
#endif
