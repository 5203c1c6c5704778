// Copies keys and values of one position from page to page, as they are stored (kv_pages.h).
// Internal linkage: compiled with different target flags.
#pragma once
#include "kv_layout.h"
#include "kv_packed_store.h"

namespace {

// A position of one KV head's page.
struct Place {
  PageView page;
  int at;
};

template <class T>
inline void copy_spaced(const uint8_t* from, uint8_t* to, int count, size_t apart) {
  for (int i = 0; i < count; i++) memcpy(to + i * apart, from + i * apart, sizeof(T));
}

inline void copy_key_f16(const uint8_t* from, int from_at, uint8_t* to, int to_at, int dim) {
  const auto column = [&](int at) {
    return sizeof(uint16_t) * (size_t(at / kPanel) * dim * kPanel + at % kPanel);
  };
  copy_spaced<uint16_t>(from + column(from_at), to + column(to_at), dim, sizeof(uint16_t) * kPanel);
}
inline void copy_value_f16(const uint8_t* from, int from_at, uint8_t* to, int to_at, int stride) {
  const size_t bytes = sizeof(uint16_t) * stride;
  memcpy(to + to_at * bytes, from + from_at * bytes, bytes);
}

constexpr int kPairPanel = 2 * kPanel;  // positions, or columns, of the pairs of bfloat16
inline void copy_key_pairs(const uint8_t* from, int from_at, uint8_t* to, int to_at, int dim) {
  const auto column = [&](int at) {
    return sizeof(uint32_t) * (size_t(at / kPairPanel) * (dim / 2) * kPairPanel + at % kPairPanel);
  };
  copy_spaced<uint32_t>(from + column(from_at), to + column(to_at), dim / 2,
                        sizeof(uint32_t) * kPairPanel);
}
inline void copy_value_pairs(const uint8_t* from, int from_at, uint8_t* to, int to_at, int stride) {
  for (int d = 0; d < stride; d += kPairPanel) {
    const int width = std::min(kPairPanel, stride - d);
    const auto row = [&](int at) {
      return sizeof(uint16_t) * (size_t(d) * kPage + at / 2 * 2 * width + at % 2);
    };
    copy_spaced<uint16_t>(from + row(from_at), to + row(to_at), width, 2 * sizeof(uint16_t));
  }
}

template <class Type>
void copy_packed_key(const uint8_t* from, int from_at, uint8_t* to, int to_at, int dim) {
  constexpr int kBits = Type::kBits;
  const uint8_t* source = from + from_at / kPanel * panel_bytes(Type::kType, dim);
  uint8_t* target = to + to_at / kPanel * panel_bytes(Type::kType, dim);
  for (int d = 0; d < dim; d++) {
    const size_t group = d / kKvBlock * group_bytes(kBits);
    const int vector = d % kKvBlock / kQuad, lane = d % kQuad;
    put_code<kBits>(target + group, vector, to_at % kPanel * kQuad + lane,
                    code_at<kBits>(source + group, vector, from_at % kPanel * kQuad + lane));
  }
  const size_t codes = panel_codes(Type::kType, dim);
  copy_spaced<uint16_t>(source + codes + sizeof(uint16_t) * (from_at % kPanel),
                        target + codes + sizeof(uint16_t) * (to_at % kPanel),
                        scales_of(format_of(Type::kType), dim), sizeof(uint16_t) * kPanel);
}

template <class Type>
void copy_packed_value(const uint8_t* from, int from_at, uint8_t* to, int to_at, int dim) {
  constexpr int kBits = Type::kBits;
  const auto group = [](int d, ValuePlace place) {
    return (d / kKvBlock * kColumnGroups + place.vector / kGroupVectors) * group_bytes(kBits);
  };
  for (int d = 0; d < dim; d++) {
    const ValuePlace source(d % kKvBlock, from_at), target(d % kKvBlock, to_at);
    put_code<kBits>(
        to + group(d, target), target.vector % kGroupVectors, target.code,
        code_at<kBits>(from + group(d, source), source.vector % kGroupVectors, source.code));
  }
  const size_t codes = size_t(kPage) * dim * kBits / 8;
  copy_spaced<uint16_t>(from + codes + sizeof(uint16_t) * from_at,
                        to + codes + sizeof(uint16_t) * to_at,
                        scales_of(format_of(Type::kType), dim), sizeof(uint16_t) * kPage);
}

using CopyRow = void (*)(const uint8_t* from, int from_at, uint8_t* to, int to_at, int dim);

// Returns the function that copies a row of a packed type, as a key or as a value.
inline CopyRow packed_copy(KvType type, bool is_key) {
  CopyRow found = nullptr;
  each_packed_type([&](auto each) {
    using Type = decltype(each);
    if (Type::kType == type) found = is_key ? copy_packed_key<Type> : copy_packed_value<Type>;
  });
  return found;
}

// Copies the key and the value of a position of one layer's pages.
class PositionCopy {
 public:
  PositionCopy(const KvLayer& cache, int precision, const VectorOps& vectors)
      : key_dim_(cache.key_dim), value_stride_(cache.value_stride) {
    const KvType keys = KvType(cache.key_type), values = KvType(cache.value_type);
    const int pairs = int(KvLayout::Bf16Pairs);
    const bool pairs_keys = &key_ops(cache, precision, vectors) == &vectors.keys[pairs];
    const bool pairs_values = &value_ops(cache, precision, vectors) == &vectors.values[pairs];
    key_ = keys != KvType::F16 ? packed_copy(keys, true)
           : pairs_keys        ? copy_key_pairs
                               : copy_key_f16;
    value_ = values != KvType::F16 ? packed_copy(values, false)
             : pairs_values        ? copy_value_pairs
                                   : copy_value_f16;
  }

  void operator()(Place from, Place to) const {
    key_(from.page.keys, from.at, to.page.keys, to.at, key_dim_);
    if (from.page.values) value_(from.page.values, from.at, to.page.values, to.at, value_stride_);
  }

 private:
  const int key_dim_, value_stride_;
  CopyRow key_, value_;
};

}  // namespace
