// cvt: between integers and floats of all widths.
#include <cfenv>
#include <cmath>
#include <limits>

#include "small_floats.h"

namespace ptx {
namespace {

bool is_float(Type type) { return type >= Type::f16 && type <= Type::f64; }

int64_t integer(Type type, uint64_t word) {
  switch (type) {
    case Type::s8: return int8_t(word);
    case Type::u8:
    case Type::b8: return uint8_t(word);
    case Type::s16: return int16_t(word);
    case Type::u16:
    case Type::b16: return uint16_t(word);
    case Type::s32: return int32_t(word);
    case Type::u32:
    case Type::b32: return uint32_t(word);
    default: return int64_t(word);
  }
}

double real(Type type, uint64_t word, bool ftz) {
  switch (type) {
    case Type::f16: return from_small(uint16_t(word), kHalf);
    case Type::bf16: return from_small(uint16_t(word), kBrain);
    case Type::f64: return get<double>(word);
    default: break;
  }
  const float value = get<float>(word);
  return ftz && std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}

// Sets a register of at least the type's width.
uint64_t of_integer(Type type, uint64_t value) { return uint64_t(integer(type, value)); }

uint64_t clamped(Type type, int64_t value, bool from_unsigned) {
  const int bits = 8 * bytes_of(type);
  const int64_t low = is_signed(type) ? -(int64_t(1) << (bits - 1)) : 0;
  const int64_t high = int64_t((uint64_t(1) << (bits - is_signed(type) - (bits == 64))) - 1);
  if (from_unsigned && value < 0) return uint64_t(bits == 64 && !is_signed(type) ? value : high);
  if (bits == 64) return uint64_t(is_signed(type) || value > 0 ? value : 0);
  return uint64_t(value < low ? low : value > high ? high : value);
}

// Floats become the nearest integer that the type holds; NaN becomes 0.
uint64_t to_integer(Type type, double value) {
  const int bits = 8 * bytes_of(type);
  const double high = std::ldexp(1.0, bits - is_signed(type));
  const double low = is_signed(type) ? -high : 0.0;
  if (std::isnan(value)) return bits == 64 ? uint64_t(1) << 63 : 0;
  if (value >= high)
    return is_signed(type) ? (uint64_t(1) << (bits - 1)) - 1 : ~uint64_t(0) >> (64 - bits);
  if (value < low) return is_signed(type) ? uint64_t(int64_t(low)) : 0;
  return is_signed(type) ? uint64_t(int64_t(value)) : uint64_t(value);
}

uint64_t to_float(const Op& op, Type type, double value) {
  if (op.sat) value = value > 0 ? (value < 1 ? value : 1) : 0;
  uint64_t word = 0;
  if (type == Type::f16) return to_small(value, kHalf, op.rounding);
  if (type == Type::bf16) return to_small(value, kBrain, op.rounding);
  if (type == Type::f64) {
    put<double>(word, value);
    return word;
  }
  float out = float(value);
  if (std::isnan(out)) return 0x7fffffff;
  if (op.ftz && std::fpclassify(out) == FP_SUBNORMAL) out = std::copysign(0.0f, out);
  put<float>(word, out);
  return word;
}

void between_integers(Machine& m, const Op& op, const Ins& i) {
  const Type to = op.types[0], from = op.types[1];
  uint64_t *d = m.row(i.a[0]), *a = m.row(i.a[1]);
  const bool large = from == Type::u64 || from == Type::b64;
  m.each([&](int l) {
    const int64_t value = integer(from, a[l]);
    d[l] = of_integer(to, op.sat ? clamped(to, value, large) : uint64_t(value));
  });
}

// With one rounding: a double holds all integers of 32 bits, and larger ones go straight to f32.
void from_integer(Machine& m, const Op& op, const Ins& i) {
  const Type to = op.types[0], from = op.types[1];
  uint64_t *d = m.row(i.a[0]), *a = m.row(i.a[1]);
  std::fesetround(op.rounding);
  m.each([&](int l) {
    const int64_t value = integer(from, a[l]);
    const bool large = from == Type::u64;
    if (to == Type::f32 && bytes_of(from) == 8)
      put<float>(d[l], large ? float(uint64_t(value)) : float(value));
    else d[l] = to_float(op, to, large ? double(uint64_t(value)) : double(value));
  });
  std::fesetround(FE_TONEAREST);
}

void from_float(Machine& m, const Op& op, const Ins& i) {
  const Type to = op.types[0], from = op.types[1];
  uint64_t *d = m.row(i.a[0]), *a = m.row(i.a[1]);
  const bool whole = op.has("rni") || op.has("rzi") || op.has("rmi") || op.has("rpi");
  std::fesetround(op.rounding);
  m.each([&](int l) {
    double value = real(from, a[l], op.ftz);
    if (whole) value = std::nearbyint(value);
    d[l] = is_float(to) ? to_float(op, to, value) : of_integer(to, to_integer(to, value));
  });
  std::fesetround(FE_TONEAREST);
}

// cvt.rn.f16x2.f32 d, a, b: a is the upper half.
void pair(Machine& m, const Op& op, const Ins& i) {
  const Type half = op.types[0] == Type::f16x2 ? Type::f16 : Type::bf16;
  uint64_t *d = m.row(i.a[0]), *a = m.row(i.a[1]), *b = m.row(i.a[2]);
  m.each([&](int l) {
    const uint64_t high = to_float(op, half, get<float>(a[l]));
    d[l] = high << 16 | to_float(op, half, get<float>(b[l]));
  });
}

bool has_rounding(const Op& op) {
  return op.has("rn") || op.has("rz") || op.has("rm") || op.has("rp");
}

Run conversion(const Op& op) {
  const Type to = op.types[0], from = op.types[1];
  const bool whole = op.has("rni") || op.has("rzi") || op.has("rmi") || op.has("rpi");
  if (to == Type::f16x2 || to == Type::bf16x2)
    return from == Type::f32 && op.has("rn") ? pair : nullptr;
  if (!is_float(from))
    return !is_float(to) ? between_integers : has_rounding(op) ? from_integer : nullptr;
  if (!is_float(to)) return whole ? from_float : nullptr;
  const bool narrows = bytes_of(to) < bytes_of(from);
  return !narrows || has_rounding(op) ? from_float : nullptr;
}

}  // namespace

bool decode_conversions(Op& op) {
  if (op.parts[0] != "cvt" || op.types.size() != 2) return false;
  if (!only(op, {"rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi", "ftz", "sat"})) return false;
  op.run = conversion(op);
  return op.run != nullptr;
}

}  // namespace ptx
