// Vector operations for AVX-512.
#if defined(__AVX512F__)
#include "attention/rounded_ops.h"
#include "vector_ops_impl.h"

constinit const sharpi::VectorOps sharpi::kAvx512VectorOps =
    with_rounded(make_vector_ops("avx512"));
#endif
