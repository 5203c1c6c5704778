// The layout of a layer's pages: the same for all programs of one precision and instruction set,
// because they share pages.
#pragma once
#include "matmul/tiles.h"
#include "vector/vector_ops.h"

namespace sharpi {

// Returns the rounded implementation where activations are int8 and there is one, else the exact.
template <class Ops>
const Ops& kv_ops(const Ops* layouts, KvType type, const KvLayer& cache, int precision) {
  const Ops& rounded = layouts[kv_layout(type, true)];
  const bool rounds = Rounding(precision) == Rounding::Int8;
  if (rounds && rounded.takes && rounded.takes(cache)) return rounded;
  return layouts[kv_layout(type, false)];
}
inline const KeyOps& key_ops(const KvLayer& cache, int precision, const VectorOps& vectors) {
  return kv_ops(vectors.keys, KvType(cache.key_type), cache, precision);
}
// Values within keys have the type of keys.
inline const ValueOps& value_ops(const KvLayer& cache, int precision, const VectorOps& vectors) {
  const int type = cache.values_in_keys ? cache.key_type : cache.value_type;
  return kv_ops(vectors.values, KvType(type), cache, precision);
}

}  // namespace sharpi
