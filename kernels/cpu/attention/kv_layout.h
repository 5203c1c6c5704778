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
inline const KeyOps& key_ops(const KvLayer& cache, int precision, const VectorOps& vectors) {
  const KeyOps& finer = vectors.finer_keys[cache.key_type];
  if (Rounding(precision) == Rounding::Int16 && finer.takes) return finer;
  return kv_ops(vectors.keys, KvType(cache.key_type), cache, Rounding(precision) == Rounding::Int8);
}
// Values within keys have the type of keys. Weights of packed values are rounded to 15 bits, which
// activations of 16 bits allow as well.
inline const ValueOps& value_ops(const KvLayer& cache, int precision, const VectorOps& vectors) {
  const KvType type = KvType(cache.values_in_keys ? cache.key_type : cache.value_type);
  const bool rounds = Rounding(precision) == Rounding::Int8 ||
                      (Rounding(precision) == Rounding::Int16 && type != KvType::F16);
  return kv_ops(vectors.values, type, cache, rounds);
}

}  // namespace sharpi
