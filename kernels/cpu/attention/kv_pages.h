// One layer's part of the KV cache: pages of 64 positions, each with the keys and values of every
// KV head, then the keys of the layer's indexer, if it has one.
//
// - f16: keys [64 / 16][key_dim][16], then values [64][value_stride].
// - bfloat16 pairs, in the order in which they are read: keys [64 / 32][key_dim / 2][32][2], pairs
//   of two dimensions; then values in columns of 32 (the last may have 16), each [64 / 2][32][2],
//   pairs of two positions.
// - packed types, blocks of 32 numbers with an f16 scale, or one scale for a head's row: keys in
//   panels of 16 positions, each with key_dim / 32 groups of codes, then scales [blocks][16], then
//   minimums like them where the type has some; then values in columns of 32, each with four groups
//   of codes, and after all columns scales [blocks][64] and minimums like them.
// - a group has 8 vectors of 64 codes, packed as kv_packed.h says. In a group of keys vector i has
//   the numbers 4 i to 4 i + 3 of the block, [16 positions][4]. In a column of values vectors 2 i
//   and 2 i + 1 of 32 have four positions, i and those 16, 32 and 48 further: the first 16 numbers
//   [16][4], then the last ones.
#pragma once
#include <cstddef>
#include <cstdint>

namespace sharpi {

constexpr int kPage = 64;     // positions of a KV page, and of one step of the online softmax
constexpr int kPanel = 16;    // positions that lie side by side in the keys
constexpr int kKvBlock = 32;  // numbers with one scale

enum class KvType : int32_t { F16 = 0, Q8_0, Q5_1, Q5_0, Q4_0, IQ4_NL, Turbo3 };

// The size of a packed type's codes, and the scales that it has.
struct PackedFormat {
  int bits;
  bool has_minimum;    // each block has a minimum as well as a scale
  bool has_row_scale;  // one scale for the whole row of a head
};
constexpr PackedFormat kPackedFormats[] = {
    {16, false, false}, {8, false, false}, {5, true, false}, {5, false, false},
    {4, false, false},  {4, false, false}, {3, false, true},
};
constexpr int kNumKvTypes = sizeof kPackedFormats / sizeof *kPackedFormats;
constexpr PackedFormat format_of(KvType type) { return kPackedFormats[int(type)]; }

// How pages are stored and read. Rounded: multiplications use rounded operands, in the type that
// the machine multiplies fastest. A packed type's two layouts are stored alike.
enum class KvLayout { F16 = 0, Bf16Pairs = 1, FirstPacked = 2 };
constexpr int kNumKvLayouts = 2 * kNumKvTypes;
constexpr int kv_layout(KvType type, bool is_rounded) { return 2 * int(type) + is_rounded; }

struct KvLayer {
  uint8_t* data;
  int32_t heads, key_dim, value_dim;
  int32_t value_stride;          // value_dim rounded up to 16; the padding is zero
  int32_t values_in_keys;        // values are the beginning of each key, or there are none
  int32_t key_type, value_type;  // KvType; packed types take whole blocks only
  // The size of the blocks that a Hadamard transform rotates, a power of two; 0: none are.
  int32_t key_rotation, value_rotation;
  int32_t page_bytes;  // of all that the layer stores; keys and values of these heads may be a part
  int32_t in_rows;     // f16 keys are rows [64][key_dim] instead, for reads of single positions
  int32_t reserved;
};

// Returns the number of f16 scales, or of scales and minimums, of a row of `dim` numbers.
constexpr int scales_of(PackedFormat f, int dim) {
  return (f.has_row_scale ? 1 : dim / kKvBlock) * (f.has_minimum ? 2 : 1);
}
// Returns the bytes of one head's part of a page with `dim` numbers per position.
constexpr size_t kv_bytes(KvType type, int dim) {
  const PackedFormat f = format_of(type);
  if (type == KvType::F16) return size_t(2) * kPage * dim;
  return size_t(kPage) * dim * f.bits / 8 + size_t(2) * kPage * scales_of(f, dim);
}
inline size_t kv_key_bytes(const KvLayer& c) { return kv_bytes(KvType(c.key_type), c.key_dim); }
inline size_t kv_head_bytes(const KvLayer& c) {
  return kv_key_bytes(c) + (c.values_in_keys ? 0 : kv_bytes(KvType(c.value_type), c.value_stride));
}

struct PageView {
  uint8_t *keys, *values;  // values: null where they are in the keys
};
inline PageView page_of(const KvLayer& c, int page, int head) {
  uint8_t* keys = c.data + size_t(page) * c.page_bytes + head * kv_head_bytes(c);
  return {keys, c.values_in_keys ? nullptr : keys + kv_key_bytes(c)};
}

}  // namespace sharpi
