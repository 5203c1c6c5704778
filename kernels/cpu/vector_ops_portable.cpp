// Vector operations for the compiler's baseline target (on ARM: NEON).
#include "vector_ops_impl.h"

namespace sharpi {
const VectorOps* portable_vector_ops() {
  static constexpr VectorOps ops = make_vector_ops("portable");
  return &ops;
}
}  // namespace sharpi
