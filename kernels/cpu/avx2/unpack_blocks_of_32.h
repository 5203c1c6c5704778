// Unpacks blocks of 32 with one scale, 8 rows at a time: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.
#pragma once
#include <cstddef>

#include "layout.h"
#include "quant_blocks.h"
#include "token_block.h"

namespace sharpi::avx2 {
namespace {

// A Type has scale() of one block of 8 rows, and values(), which returns a function that unpacks
// register i of the first and of the last 16 columns.
template <class Type>
struct UnpackBlocksOf32 {
  static constexpr int kPartsAtOnce = 1;  // each part is finished at once
  using Direct = PairedRows;
  static constexpr TileKind kKind = Type::kKind;
  static constexpr int kBlockColumns = 32, kBlockBytes = sizeof(typename Type::Block);
  static constexpr bool kOrdersEarly = kBlockBytes < 32;  // not Q8_0, with little to order

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int num_parts, Out& out) {
    if (Out::kUnrolls && num_parts == kParts) {
#pragma GCC unroll 8
      for (int part = 0; part < kParts; part++) unpack_part(blocks + part * kBlockBytes, part, out);
    } else {
#pragma GCC unroll 1
      for (int part = 0; part < num_parts; part++)
        unpack_part(blocks + part * kBlockBytes, part, out);
    }
  }

 private:
  template <class Out>
  [[gnu::always_inline]] static void unpack_part(Rows block, int part, Out& out) {
    const typename Type::template Start<typename Out::Layout> start(block);
    if (Out::kScalesFirst) out.scale(part, Type::scale(start));
    out.template pieces<2>(2 * part, Type::template values<typename Out::Layout>(block, start));
    if (!Out::kScalesFirst) out.scale(part, Type::scale(start));
    if (kKind.has_offsets) out.offset(part, join_halves(block + 2));
    out.finish(part);
  }
};

// Adds the fifth bits: bit c of a row's dword belongs to value c.
template <class Layout, class Bits>
[[gnu::always_inline]] inline auto add_fifth_bits(Rows packed, const Bits& bits) {
  return [nibbles = split_nibbles<Layout>(packed), &bits](int i, Ints w[2])
             __attribute__((always_inline)) {
               nibbles(i, w);
               const Ints one_bit = Layout::bit_of_column(i);
               for (int h = 0; h < 2; h++)
                 w[h] = bit_or(w[h], where_bit(bits.byte_of_column(i, h), one_bit, 16));
             };
}

struct Q4_0 {
  using Block = BlockQ4_0;
  static constexpr TileKind kKind{32, false, 8, 15};
  template <class>
  using Start = Rows;
  static Floats scale(Rows block) { return join_halves(block); }
  template <class Layout>
  static auto values(Rows block, Rows) {
    return split_nibbles<Layout>(block + offsetof(Block, qs));
  }
};

struct Q4_1 {
  using Block = BlockQ4_1;
  static constexpr TileKind kKind{32, true, 0, 15};
  template <class>
  using Start = Rows;
  static Floats scale(Rows block) { return join_halves(block); }
  template <class Layout>
  static auto values(Rows block, Rows) {
    return split_nibbles<Layout>(block + offsetof(Block, qs));
  }
};

struct Q5_0 {
  using Block = BlockQ5_0;
  static constexpr TileKind kKind{32, false, 16, 31};
  static constexpr int kBits = offsetof(Block, qh);
  template <class Layout>
  using Start = typename Layout::template ScaleAndBits<kBits>;
  static Floats scale(const auto& start) { return start.scale(); }
  template <class Layout>
  static auto values(Rows block, const Start<Layout>& start) {
    return add_fifth_bits<Layout>(block + offsetof(Block, qs), start);
  }
};

struct Q5_1 {
  using Block = BlockQ5_1;
  static constexpr TileKind kKind{32, true, 0, 31};
  static constexpr int kBits = offsetof(Block, qh);
  template <class Layout>
  using Start = typename Layout::template ScaleAndBits<kBits>;
  static Floats scale(const auto& start) { return start.scale(); }
  template <class Layout>
  static auto values(Rows block, const Start<Layout>& start) {
    return add_fifth_bits<Layout>(block + offsetof(Block, qs), start);
  }
};

struct Q8_0 {
  using Block = BlockQ8_0;
  static constexpr TileKind kKind = signed_kind(128);
  template <class>
  using Start = Rows;
  static Floats scale(Rows block) { return join_halves(block); }
  template <class Layout>
  static auto values(Rows block, Rows) {
    using Four = typename Layout::Four;
    return [a = Four(block + offsetof(Block, qs)), b = Four(block + (offsetof(Block, qs) + 16))](
               int i, Ints w[2])
               __attribute__((always_inline)) { w[0] = biased(a[i]), w[1] = biased(b[i]); };
  }
};

}  // namespace
}  // namespace sharpi::avx2
