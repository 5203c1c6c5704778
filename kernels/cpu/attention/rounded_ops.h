// The table entries of packed types with integer products.
#pragma once
#include "rounded_values.h"

namespace {

inline bool has_values(const KvLayer& c) { return !c.values_in_keys; }

template <class Type>
constexpr void add_rounded(VectorOps& ops) {
  const int layout = kv_layout(Type::kType, true);
  ops.keys[layout] = {takes_all, store_packed_key<Type>, prepare_rounded, unpack_keys<Type>,
                      rounded_scores};
  ops.values[layout] = {has_values, store_packed_value<Type>, unpack_words<Type>, rounded_values};
}

constexpr VectorOps with_rounded(VectorOps ops) {
  each_packed_type([&](auto type) { add_rounded<decltype(type)>(ops); });
  return ops;
}

}  // namespace
