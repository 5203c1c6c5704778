// The layout of a layer's pages: the same for all programs of one precision and instruction set,
// because they share pages.
#pragma once
#include "matmul/tiles.h"
#include "vector/vector_ops.h"

namespace sharpi {

// Returns the rounded implementation if it is wanted and there is one, else the exact.
template <class Ops>
const Ops& kv_ops(const Ops* layouts, KvType type, const KvLayer& cache, bool rounds) {
  const Ops& rounded = layouts[kv_layout(type, true)];
  if (rounds && rounded.takes && rounded.takes(cache)) return rounded;
  return layouts[kv_layout(type, false)];
}
// Queries of packed keys and weights of packed values are rounded with activations of 16 bits too.
inline bool rounds_kv(KvType type, int precision) {
  return Rounding(precision) == Rounding::Int8 ||
         (Rounding(precision) == Rounding::Int16 && type != KvType::F16);
}
inline const KeyOps& key_ops(const KvLayer& cache, int precision, const VectorOps& vectors) {
  const KvType type = KvType(cache.key_type);
  return kv_ops(vectors.keys, type, cache, rounds_kv(type, precision));
}
// Values within keys have the type of keys.
inline const ValueOps& value_ops(const KvLayer& cache, int precision, const VectorOps& vectors) {
  const KvType type = KvType(cache.values_in_keys ? cache.key_type : cache.value_type);
  return kv_ops(vectors.values, type, cache, rounds_kv(type, precision));
}

}  // namespace sharpi
