// Sums products that lie as pairs of rows: four registers become one with a lane for each row.
#pragma once
#include "registers.h"

namespace sharpi::avx2 {
namespace {

// Adds adjacent int16 sums to int32.
inline Ints add_pairs(Ints products) { return madd16(products, words(1)); }

// Adds sums of kTimes products of two columns. Sums of up to kSafe products fit int16 and stay so;
// larger ones become int32.
template <int kSafe, int kTimes>
struct RowSums {
  static constexpr bool kShort = kTimes <= kSafe;

  // Adds sums of other columns of the same rows.
  [[gnu::always_inline]] static Ints add(Ints a, Ints b) {
    if constexpr (kStays) return add16(a, b);
    else return add32(wide(a), wide(b));
  }
  // Adds dwords that are two apart; the results of a and b take turns.
  [[gnu::always_inline]] static Ints add_dwords(Ints a, Ints b) {
    if constexpr (!kStays) a = wide(a), b = wide(b);
    return sum(interleave_low32(a, b), interleave_high32(a, b));
  }
  // Adds pairs of dwords that are next to each other; those of a and b take turns.
  [[gnu::always_inline]] static Ints add_pairs_of_dwords(Ints a, Ints b) {
    if constexpr (!kStays) a = wide(a), b = wide(b);
    return sum(interleave_low64(a, b), interleave_high64(a, b));
  }
  // Adds pairs of dwords that are next to each other; each half has those of a, then those of b.
  [[gnu::always_inline]] static Ints join_pairs_of_dwords(Ints a, Ints b) {
    if constexpr (!kStays) a = wide(a), b = wide(b);
    const Floats x = as_floats(a), y = as_floats(b);
    return sum(as_ints(shuffle_floats<0x88>(x, y)), as_ints(shuffle_floats<0xdd>(x, y)));
  }
  // Converts sums of kTimes products to int32.
  [[gnu::always_inline]] static Ints wide(Ints x) { return kShort ? add_pairs(x) : x; }

 private:
  static constexpr bool kStays = 2 * kTimes <= kSafe;
  [[gnu::always_inline]] static Ints sum(Ints a, Ints b) {
    return kStays ? add16(a, b) : add32(a, b);
  }
};

}  // namespace
}  // namespace sharpi::avx2
