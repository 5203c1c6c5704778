// Vector operations for AVX2 with FMA and F16C.
#if defined(__AVX2__)
#include "vector_ops_impl.h"

namespace sharpi {
const VectorOps* avx2_vector_ops() {
  static constexpr VectorOps ops = make_vector_ops("avx2");
  return &ops;
}
}  // namespace sharpi
#else
#include "vector_ops.h"
const sharpi::VectorOps* sharpi::avx2_vector_ops() { return nullptr; }
#endif
