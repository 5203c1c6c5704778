// Attention over packed keys and values, for AVX2 with AVX-VNNI.
#include "vector_ops.h"

#if defined(__AVXVNNI__)
#include "attention/rounded_values.h"

constinit const sharpi::RoundedLoops sharpi::kAvxVnniLoops = {rounded_scores<Bytes::Any, false>,
                                                              rounded_values<Bytes::Any, false>};
constinit const sharpi::RoundedLoops sharpi::kAvxVnniPackedLoops = {
    rounded_scores<Bytes::Any, true>, rounded_values<Bytes::Any, true>};
#endif
