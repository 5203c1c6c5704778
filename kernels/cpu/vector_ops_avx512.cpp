// Vector operations for AVX-512.
#if defined(__AVX512F__)
#include "vector_ops_impl.h"

namespace sharpi {
const VectorOps* avx512_vector_ops() {
  static constexpr VectorOps ops = make_vector_ops("avx512");
  return &ops;
}
}  // namespace sharpi
#else
#include "vector_ops.h"
const sharpi::VectorOps* sharpi::avx512_vector_ops() { return nullptr; }
#endif
