// Vector operations for the compiler's baseline target (on ARM: NEON).
#include "vector_ops_impl.h"

constinit const sharpi::VectorOps sharpi::kPortableVectorOps = make_vector_ops("portable");
