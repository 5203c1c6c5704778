// Unpacks types made of grid points. For a tile the points are turned, and changed for all rows at
// once. With few tokens they are multiplied as they come from the grid, and the tokens take their
// signs.
#pragma once
#include "points_of_rows.h"
#include "quant_blocks.h"

namespace sharpi::avx2 {
namespace {

// Returns d * (scale + 1/2), exactly.
inline Floats with_half(Floats d, Ints scale) {
  return multiply_add(d, to_float(scale), d * floats(0.5f));
}
// Returns nibble i of every dword, 0 <= i < 8.
inline Ints nibble_of(Ints x, int i) { return bit_and(shr32(x, 4 * i), dwords(15)); }

// Spreads four fields of kBits bits, kStep bits apart, to the bytes of a dword.
template <int kBits, int kStep>
inline Ints fields_as_bytes(Ints x) {
  constexpr int kMask = (1 << kBits) - 1;
  Ints all = bit_and(x, dwords(kMask));
#pragma GCC unroll 3
  for (int i = 1; i < 4; i++)
    all = bit_or(all, bit_and(shl32(x, (8 - kStep) * i), dwords(kMask << 8 * i)));
  return all;
}

// Keeps a block's changes of points. Byte i of a row's dword is for columns 8i..8i+7: with another,
// made by the type's Change, it becomes a word. More made before the loop would be more to load.
template <class Type>
class Changes {
 public:
  using Change = typename Type::Change;
  [[gnu::always_inline]] explicit Changes(const Type& type) {
#pragma GCC unroll 8
    for (int part = 0; part < kParts; part++) store(bytes_[part], type.changes(part));
  }
  // Spreads the words of columns 8g..8g+7 of four rows, those of j, over the columns.
  template <int g>
  [[gnu::always_inline]] Ints spread(int part, int j) const {
    const Ints bytes = load(bytes_[part]), last = Change::last_bytes(bytes);
    const Ints words = j ? interleave_high8(bytes, last) : interleave_low8(bytes, last);
    const Floats first = as_floats(interleave_low16(words, words)),
                 second = as_floats(interleave_high16(words, words));
    return as_ints(shuffle_floats<g * 0x55>(first, second));
  }

 private:
  alignas(32) uint32_t bytes_[kParts][kLanes];
};

// A Type has Points, their Numbers (indices in the grid) and Change; for a part of 32 columns it
// has changes(), each row's dword for Change, and scales(), which stores the part's scales.
template <class Type>
struct UnpackPoints {
  static constexpr int kPartsAtOnce = 1;  // each part is finished at once
  using Change = typename Type::Change;
  static constexpr TileKind kKind{Type::kGroupColumns, false, Change::kBias, 2 * Change::kBias};
  static constexpr TileKind kKindOfRows{Type::kGroupColumns, false, Change::kBiasOfRow,
                                        Change::kBias + Change::kBiasOfRow};
  static constexpr int kBlockColumns = 256, kBlockBytes = sizeof(typename Type::Block);

  template <class Out>
  [[gnu::always_inline]] static void unpack(Rows blocks, int, Out& out) {
    const Turned<typename Type::Points> points(blocks);
    const Type type(blocks);
    for (int part = 0; part < 8; part++) {
      Ints w[8];
      points.load(part, w);
      type.scales(part, out);
      Change::apply(type.changes(part), w);
      out.part(part, w);
    }
  }

  // Does the same for few tokens, four rows at a time. What these need is made for the whole block
  // first, as a part's own would be waited for.
  template <class Out>
  [[gnu::always_inline]] static void multiply(Rows blocks, Out& out) {
    const Type type(blocks);
    const typename Type::Numbers numbers(type, blocks);
    const Changes<Type> changes(type);
#pragma GCC unroll 1
    for (int part = 0; part < 8; part++) {
      type.scales(part, out);
      out.eights(part, [&]<int g>(Constant<g>, int j) __attribute__((always_inline)) {
        return
            typename Change::Eight(numbers.eight(part, g, j), changes.template spread<g>(part, j));
      });
    }
  }
};

}  // namespace
}  // namespace sharpi::avx2
