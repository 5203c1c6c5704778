// Arithmetic of f32 and f64. What PTX calls approximate is computed exactly and rounded once.
#include <cfenv>
#include <cmath>
#include <limits>

#include "machine.h"

namespace ptx {
namespace {

template <class T>
T flushed(T value, bool ftz) {
  if constexpr (sizeof(T) == 4)
    if (ftz && std::fpclassify(value) == FP_SUBNORMAL) return std::copysign(T(0), value);
  return value;
}

// The NaN of f32 results is 0x7fffffff; those of f64 keep theirs.
template <class T>
T finished(T value, const Op& op) {
  if (op.sat) return value > T(0) ? (value < T(1) ? value : T(1)) : T(0);
  if constexpr (sizeof(T) == 4)
    if (std::isnan(value)) return get<float>(0x7fffffff);
  return flushed(value, op.ftz);
}

template <class F, class T>
void run(Machine& m, const Op& op, const Ins& i) {
  uint64_t* d = m.row(i.a[0]);
  uint64_t* in[3];
  for (int n = 0; n < 3; n++) in[n] = m.row(i.a[n + 1 < i.num ? n + 1 : 1]);
  const bool rounds = op.rounding != FE_TONEAREST;
  if (rounds) std::fesetround(op.rounding);
  m.each([&](int l) {
    const auto x = [&](int n) { return flushed(get<T>(in[n][l]), op.ftz); };
    put<T>(d[l], finished(T(F::run(x(0), x(1), x(2))), op));
  });
  if (rounds) std::fesetround(FE_TONEAREST);
}

#define FLOAT(name, text)         \
  struct name {                   \
    template <class T>            \
    static T run(T a, T b, T c) { \
      (void)a, (void)b, (void)c;  \
      return text;                \
    }                             \
  };
FLOAT(Add, a + b)
FLOAT(Sub, a - b)
FLOAT(Mul, a* b)
FLOAT(Div, a / b)
FLOAT(Fma, std::fma(a, b, c))
FLOAT(Sqrt, std::sqrt(a))
FLOAT(Rcp, T(1) / a)
FLOAT(Rsqrt, T(1.0 / std::sqrt(double(a))))
FLOAT(Exp2, T(std::exp2(double(a))))
FLOAT(Log2, T(std::log2(double(a))))
FLOAT(Sin, T(std::sin(double(a))))
FLOAT(Cos, T(std::cos(double(a))))
FLOAT(Tanh, T(std::tanh(double(a))))
// A NaN gives way to a number, and -0 is less than +0.
FLOAT(Min, std::isnan(a)   ? b
           : std::isnan(b) ? a
           : a == b        ? (std::signbit(a) ? a : b)
           : a < b         ? a
                           : b)
FLOAT(Max, std::isnan(a)   ? b
           : std::isnan(b) ? a
           : a == b        ? (std::signbit(a) ? b : a)
           : a < b         ? b
                           : a)

// Signs are bits, of NaN too.
template <class T, int kWhat>
void sign(Machine& m, const Op& op, const Ins& i) {
  constexpr uint64_t kSign = uint64_t(1) << (8 * sizeof(T) - 1);
  uint64_t *d = m.row(i.a[0]), *a = m.row(i.a[1]), *b = m.row(i.num > 2 ? i.a[2] : i.a[1]);
  m.each([&](int l) {
    uint64_t word = 0;
    put<T>(word, flushed(get<T>(kWhat == 2 ? b[l] : a[l]), op.ftz));
    if (kWhat == 0) word ^= kSign;
    if (kWhat == 1) word &= ~kSign;
    if (kWhat == 2) word = (word & ~kSign) | (a[l] & kSign);  // the sign of a, the rest of b
    d[l] = word;
  });
}

template <class T>
Run exact(const std::string& name) {
  if (name == "add") return run<Add, T>;
  if (name == "sub") return run<Sub, T>;
  if (name == "mul") return run<Mul, T>;
  if (name == "fma") return run<Fma, T>;
  if (name == "div") return run<Div, T>;
  if (name == "rcp") return run<Rcp, T>;
  if (name == "sqrt") return run<Sqrt, T>;
  return nullptr;
}

template <class T>
Run unrounded(const std::string& name) {
  if (name == "min") return run<Min, T>;
  if (name == "max") return run<Max, T>;
  if (name == "neg") return sign<T, 0>;
  if (name == "abs") return sign<T, 1>;
  if (name == "copysign") return sign<T, 2>;
  return nullptr;
}

Run approximate(const std::string& name) {
  if (name == "rsqrt") return run<Rsqrt, float>;
  if (name == "ex2") return run<Exp2, float>;
  if (name == "lg2") return run<Log2, float>;
  if (name == "sin") return run<Sin, float>;
  if (name == "cos") return run<Cos, float>;
  if (name == "tanh") return run<Tanh, float>;
  return exact<float>(name);
}

template <class T>
Run of(const Op& op) {
  const std::string& name = op.parts[0];
  if (only(op, {"rn", "rz", "rm", "rp", "ftz", "sat"}))
    if (const Run found = exact<T>(name)) return found;
  if (only(op, {"ftz"}))
    if (const Run found = unrounded<T>(name)) return found;
  if (sizeof(T) == 4 && (op.has("approx") || op.has("full")) && only(op, {"approx", "full", "ftz"}))
    return approximate(name);
  return nullptr;
}

}  // namespace

bool decode_floats(Op& op) {
  if (op.types.size() != 1) return false;
  if (op.type() == Type::f32) op.run = of<float>(op);
  if (op.type() == Type::f64) op.run = of<double>(op);
  return op.run != nullptr;
}

}  // namespace ptx
