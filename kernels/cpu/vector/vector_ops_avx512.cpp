// Vector operations for AVX-512.
#if defined(__AVX512F__)
#include "attention/attend_page_rounded.h"
#include "vector_ops_impl.h"

namespace {

template <class Type>
constexpr void add_rounded(VectorOps& ops) {
  const int layout = kv_layout(Type::kType, true);
  ops.keys[layout] = {takes_all, store_packed_key<Type>, prepare_rounded, rounded_scores<Type>};
  ops.values[layout] = {has_values, store_packed_value<Type>, rounded_values<Type>};
}

}  // namespace

constinit const sharpi::VectorOps sharpi::kAvx512VectorOps = [] {
  VectorOps all = make_vector_ops("avx512");
  each_packed_type([&](auto type) { add_rounded<decltype(type)>(all); });
  return all;
}();
#endif
