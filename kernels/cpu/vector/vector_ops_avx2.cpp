// Vector operations for AVX2 with FMA and F16C.
#if defined(__AVX2__)
#include "vector_ops_impl.h"

constinit const sharpi::VectorOps sharpi::kAvx2VectorOps = make_vector_ops("avx2");
#endif
