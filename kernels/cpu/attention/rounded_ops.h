// The table entries of packed types with integer products.
#pragma once
#include "rounded_values.h"

namespace {

inline bool has_values(const KvLayer& c) { return !c.values_in_keys; }

// What is known of a type's numbers. Only q8_0 never has a negative scale.
template <class Type>
constexpr Bytes kKeyBytes = Type::kZero + (1 << Type::kBits) <= 48 ? Bytes::Small : Bytes::Any;
template <class Type>
constexpr Bytes kValueBytes = Type::kType == KvType::Q8_0 ? Bytes::Positive : kKeyBytes<Type>;

template <class Type>
constexpr void add_rounded(VectorOps& ops) {
  const int layout = kv_layout(Type::kType, true);
  ops.keys[layout] = {takes_all, store_packed_key<Type>, prepare_rounded<Type>,
                      unpack_keys<Type, kStaysPacked<Type>>,
                      rounded_scores<kKeyBytes<Type>, kStaysPacked<Type>>};
  ops.values[layout] = {has_values, store_packed_value<Type>, unpack_scaled<Type>,
                        rounded_values<kValueBytes<Type>, kStaysPacked<Type>>};
}

constexpr VectorOps with_rounded(VectorOps ops) {
  each_packed_type([&](auto type) { add_rounded<decltype(type)>(ops); });
  return ops;
}

}  // namespace
