#include "small_floats.h"

#include <cfenv>
#include <cmath>

namespace ptx {

double from_small(uint16_t bits, SmallFloat kind) {
  const int fraction = bits & ((1 << kind.fraction_bits) - 1);
  const int all_ones = (1 << kind.exponent_bits) - 1;
  const int exponent = bits >> kind.fraction_bits & all_ones;
  const int bias = all_ones / 2;
  double value;
  if (exponent == all_ones) value = fraction ? NAN : INFINITY;
  else if (exponent == 0) value = std::ldexp(fraction, 1 - bias - kind.fraction_bits);
  else
    value = std::ldexp(fraction + (1 << kind.fraction_bits), exponent - bias - kind.fraction_bits);
  return bits >> 15 ? -value : value;
}

uint16_t to_small(double value, SmallFloat kind, int rounding) {
  if (std::isnan(value)) return 0x7fff;
  const int all_ones = (1 << kind.exponent_bits) - 1, bias = all_ones / 2;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double size = std::fabs(value);
  const uint16_t infinity = uint16_t(all_ones << kind.fraction_bits);
  if (std::isinf(size)) return sign | infinity;
  int exponent = size == 0 ? 1 - bias : std::ilogb(size);
  if (exponent < 1 - bias) exponent = 1 - bias;
  // In units of the last place; the sum of exponent and fraction carries over by itself.
  double units = std::ldexp(size, kind.fraction_bits - exponent);
  double whole = std::floor(units);
  const double rest = units - whole;
  if (rounding == FE_TONEAREST && (rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2) == 1)))
    whole += 1;
  const long bits = long(whole) + (long(exponent + bias - 1) << kind.fraction_bits);
  if (bits >= infinity) return sign | (rounding == FE_TONEAREST ? infinity : infinity - 1);
  return sign | uint16_t(bits);
}

}  // namespace ptx
