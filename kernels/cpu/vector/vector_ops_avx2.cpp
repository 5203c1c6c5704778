// Vector operations for AVX2 with FMA and F16C.
#if defined(__AVX2__)
#include "attention/rounded_ops.h"
#include "vector_ops_impl.h"

constinit const sharpi::VectorOps sharpi::kAvx2VectorOps = with_rounded(make_vector_ops("avx2"));
#endif
