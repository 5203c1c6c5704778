// One layer's part of the KV cache: pages of 64 positions, each with the keys and values of every
// KV head.
//
// - f16: keys [64 / 16][key_dim][16], then values [64][value_stride].
// - bfloat16 pairs, in the order in which they are read: keys [64 / 32][key_dim / 2][32][2], pairs
//   of two dimensions; then values in columns of 32 (the last may have 16), each [64 / 2][32][2],
//   pairs of two positions.
// - q8_0, blocks of 32 numbers with an f16 scale: keys in panels of 16 positions, each [key_dim /
//   4][16][4] bytes (the number plus 128) and scales [key_dim / 32][16]; then values in columns of
//   32, each [64 / 32][16][32][2] bytes, where the last index is for positions 16 apart, and scales
//   [64].
#pragma once
#include <cstddef>
#include <cstdint>

namespace sharpi {

constexpr int kPage = 64;     // positions of a KV page, and of one step of the online softmax
constexpr int kPanel = 16;    // positions that lie side by side in the keys
constexpr int kKvBlock = 32;  // numbers of q8_0 with one scale

enum class KvType : int32_t { F16 = 0, Q8_0 = 1 };

// How pages are stored and read. Rounded: multiplications use rounded operands, in the type that
// the machine multiplies fastest.
enum class KvLayout { F16, Bf16Pairs, Q8, Q8Rounded };
constexpr int kNumKvLayouts = 4;

struct KvLayer {
  uint8_t* data;
  int32_t heads, key_dim, value_dim;
  int32_t value_stride;    // value_dim rounded up to 16; the padding is zero
  int32_t values_in_keys;  // there are no separate values: they are the beginning of each key
  int32_t type;            // KvType; q8_0 takes whole blocks only
};

// Returns the bytes of one head's part of a page with `dim` numbers per position.
inline size_t kv_bytes(KvType type, int dim) {
  return type == KvType::F16 ? size_t(2) * kPage * dim : size_t(kPage) * (dim + dim / kKvBlock * 2);
}
inline size_t kv_head_bytes(const KvLayer& c) {
  return kv_bytes(KvType(c.type), c.key_dim) +
         (c.values_in_keys ? 0 : kv_bytes(KvType(c.type), c.value_stride));
}

struct PageView {
  uint8_t *keys, *values;  // values: null where they are in the keys
};
inline PageView page_of(const KvLayer& c, int page, int head) {
  uint8_t* keys = c.data + (size_t(page) * c.heads + head) * kv_head_bytes(c);
  return {keys, c.values_in_keys ? nullptr : keys + kv_bytes(KvType(c.type), c.key_dim)};
}

}  // namespace sharpi
