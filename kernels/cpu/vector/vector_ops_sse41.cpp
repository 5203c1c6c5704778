// Vector operations for SSE4.1.
#if defined(__SSE4_1__)
#include "vector_ops_impl.h"

constinit const sharpi::VectorOps sharpi::kSse41VectorOps = make_vector_ops("sse41");
#endif
