// setp: comparisons that set predicates.
#include <cmath>

#include "machine.h"

namespace ptx {
namespace {

enum Compare { kEq = 1, kNe, kLt, kLe, kGt, kGe, kNum, kNan };
constexpr int kUnordered = 16;  // true where an operand is NaN

int compare_of(const std::string& part) {
  static const char* const names[] = {"eq", "ne", "lt", "le", "gt", "ge", "num", "nan"};
  for (int index = 0; index < 8; index++) {
    if (part == names[index]) return index + 1;
    if (index < 6 && part == std::string(names[index]) + "u") return (index + 1) | kUnordered;
  }
  if (part == "lo") return kLt;
  if (part == "ls") return kLe;
  if (part == "hi") return kGt;
  return part == "hs" ? kGe : 0;
}

template <class T>
bool holds(int compare, T a, T b) {
  if constexpr (T(0.5) != T(0)) {
    const bool nan = std::isnan(a) || std::isnan(b);
    if ((compare & 15) == kNum || (compare & 15) == kNan) return nan == ((compare & 15) == kNan);
    if (nan) return (compare & kUnordered) != 0;
  }
  switch (compare & 15) {
    case kEq: return a == b;
    case kNe: return a != b;
    case kLt: return a < b;
    case kLe: return a <= b;
    case kGt: return a > b;
    default: return a >= b;
  }
}

template <class T>
T taken(uint64_t word, bool ftz) {
  const T value = get<T>(word);
  if constexpr (T(0.5) != T(0))
    if (ftz && std::fpclassify(value) == FP_SUBNORMAL) return std::copysign(T(0), value);
  return value;
}

bool joined(int logic, bool one, bool other) {
  return logic == '&' ? one && other : logic == '|' ? one || other : one != other;
}

// Operands: p, or p|q, where q is for the opposite; a, b; with .and, .or, .xor one more predicate.
template <class T>
void set(Machine& m, const Op& op, const Ins& i) {
  const int sources = op.logic ? 3 : 2, outs = i.num - sources;
  uint64_t *p = m.row(i.a[0]), *q = outs == 2 ? m.row(i.a[1]) : nullptr;
  uint64_t *a = m.row(i.a[outs]), *b = m.row(i.a[outs + 1]);
  uint64_t* c = op.logic ? m.row(i.a[outs + 2]) : nullptr;
  const bool inverted = i.inverted >> (outs + 2) & 1;
  m.each([&](int l) {
    const bool result = holds(op.compare, taken<T>(a[l], op.ftz), taken<T>(b[l], op.ftz));
    const bool third = c && ((c[l] & 1) != 0) != inverted;
    p[l] = c ? joined(op.logic, result, third) : result;
    if (q) q[l] = c ? joined(op.logic, !result, third) : !result;
  });
}

Run set_of(Type type) {
  switch (type) {
    case Type::s16: return set<int16_t>;
    case Type::u16:
    case Type::b16: return set<uint16_t>;
    case Type::s32: return set<int32_t>;
    case Type::u32:
    case Type::b32: return set<uint32_t>;
    case Type::s64: return set<int64_t>;
    case Type::u64:
    case Type::b64: return set<uint64_t>;
    case Type::f32: return set<float>;
    case Type::f64: return set<double>;
    default: return nullptr;
  }
}

}  // namespace

bool decode_compares(Op& op) {
  if (op.parts[0] != "setp" || op.types.size() != 1 || op.parts.size() < 3) return false;
  op.compare = compare_of(op.parts[1]);
  if (op.has("and")) op.logic = '&';
  if (op.has("or")) op.logic = '|';
  if (op.has("xor")) op.logic = '^';
  if (!op.compare || !only(op, {op.parts[1].c_str(), "and", "or", "xor", "ftz"})) return false;
  op.run = set_of(op.type());
  return op.run != nullptr;
}

}  // namespace ptx
