// Floats of 16 bits as values: f16 and bf16.
#pragma once
#include "machine.h"

namespace ptx {

struct SmallFloat {
  int exponent_bits, fraction_bits;
};
constexpr SmallFloat kHalf{5, 10}, kBrain{8, 7};

// Exact.
double from_small(uint16_t bits, SmallFloat kind);
// Rounded once, to nearest even (FE_TONEAREST) or towards zero (FE_TOWARDZERO); overflow to nearest
// gives infinity; any NaN gives 0x7fff.
uint16_t to_small(double value, SmallFloat kind, int rounding);

}  // namespace ptx
