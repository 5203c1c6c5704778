// The layout of a layer's pages: the same for all programs of one precision and instruction set,
// because they share pages.
#pragma once
#include "matmul/tiles.h"
#include "vector/vector_ops.h"

namespace sharpi {

inline const KvOps& kv_ops(const KvLayer& cache, int precision, const VectorOps& vectors) {
  const bool is_q8 = KvType(cache.type) == KvType::Q8_0;
  const KvOps& rounded = vectors.kv[int(is_q8 ? KvLayout::Q8Rounded : KvLayout::Bf16Pairs)];
  if (Rounding(precision) == Rounding::Int8 && rounded.takes && rounded.takes(cache))
    return rounded;
  return vectors.kv[int(is_q8 ? KvLayout::Q8 : KvLayout::F16)];
}

}  // namespace sharpi
