// Sums of products that lie as pairs of rows: four registers become one with a lane for each row.
#pragma once
#include "registers.h"

namespace sharpi::avx2 {
namespace {

// The products of two columns each, in int16, two by two as int32.
inline Ints add_pairs(Ints products) { return madd16(products, words(1)); }

// Sums of kTimes products of two columns, of which kSafe fit int16. They stay int16 for as long as
// that is so.
template <int kSafe, int kTimes>
struct RowSums {
  static constexpr bool kShort = kTimes <= kSafe;

  // Sums of twice as many: of other columns,
  [[gnu::always_inline]] static Ints add(Ints a, Ints b) {
    if constexpr (kStays) return add16(a, b);
    else return add32(wide(a), wide(b));
  }
  // of dwords that are two apart, those of a and b taking turns,
  [[gnu::always_inline]] static Ints add_dwords(Ints a, Ints b) {
    if constexpr (!kStays) a = wide(a), b = wide(b);
    return sum(interleave_low32(a, b), interleave_high32(a, b));
  }
  // and of pairs of dwords that are next to each other.
  [[gnu::always_inline]] static Ints add_pairs_of_dwords(Ints a, Ints b) {
    if constexpr (!kStays) a = wide(a), b = wide(b);
    return sum(interleave_low64(a, b), interleave_high64(a, b));
  }
  // Sums of twice as many, as int32; and these.
  [[gnu::always_inline]] static Ints wide_twice(Ints x) { return kStays ? add_pairs(x) : x; }
  [[gnu::always_inline]] static Ints wide(Ints x) { return kShort ? add_pairs(x) : x; }

 private:
  static constexpr bool kStays = 2 * kTimes <= kSafe;
  [[gnu::always_inline]] static Ints sum(Ints a, Ints b) {
    return kStays ? add16(a, b) : add32(a, b);
  }
};

}  // namespace
}  // namespace sharpi::avx2
