// Arithmetic of integers.
#include <algorithm>
#include <type_traits>

#include "machine.h"

namespace ptx {
namespace {

template <class F, class T>
void unary(Machine& m, const Op&, const Ins& i) {
  uint64_t *d = m.row(i.a[0]), *a = m.row(i.a[1]);
  m.each([&](int l) { put<T>(d[l], F::run(get<T>(a[l]))); });
}

template <class F, class T>
void binary(Machine& m, const Op&, const Ins& i) {
  uint64_t *d = m.row(i.a[0]), *a = m.row(i.a[1]), *b = m.row(i.a[2]);
  m.each([&](int l) { put<T>(d[l], F::run(get<T>(a[l]), get<T>(b[l]))); });
}

template <class F, class T>
void ternary(Machine& m, const Op&, const Ins& i) {
  uint64_t *d = m.row(i.a[0]), *a = m.row(i.a[1]), *b = m.row(i.a[2]), *c = m.row(i.a[3]);
  m.each([&](int l) { put<T>(d[l], F::run(get<T>(a[l]), get<T>(b[l]), get<T>(c[l]))); });
}

template <class T>
using Wider = std::conditional_t<
    sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
    std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>,
                       std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>>>;

template <class T>
void wide(Machine& m, const Op& op, const Ins& i) {
  if constexpr (sizeof(T) < 8) {
    using W = Wider<T>;
    uint64_t *d = m.row(i.a[0]), *a = m.row(i.a[1]), *b = m.row(i.a[2]);
    uint64_t* c = op.parts[0] == "mad" ? m.row(i.a[3]) : nullptr;
    m.each([&](int l) {
      put<W>(d[l], W(get<T>(a[l])) * W(get<T>(b[l])) + (c ? get<W>(c[l]) : W(0)));
    });
  }
}

#define ONE(name, text) \
  struct name {         \
    template <class T>  \
    static T run(T a) { \
      return T(text);   \
    }                   \
  };
#define TWO(name, text)      \
  struct name {              \
    template <class T>       \
    static T run(T a, T b) { \
      return T(text);        \
    }                        \
  };
ONE(Neg, -a)
ONE(Abs, a < T(0) ? -a : a)
TWO(Add, a + b)
TWO(Sub, a - b)
TWO(Mul, Wider<T>(a) * Wider<T>(b))
TWO(High, (Wider<T>(a) * Wider<T>(b)) >> (8 * sizeof(T)))
TWO(Min, std::min(a, b))
TWO(Max, std::max(a, b))
// By zero the quotient has all bits set; the least number by -1 wraps.
TWO(Div, b == 0 ? T(-1) : T(Wider<T>(a) / Wider<T>(b)))
TWO(Rem, b == 0 ? a : T(Wider<T>(a) % Wider<T>(b)))

struct Mad {
  template <class T>
  static T run(T a, T b, T c) {
    return T(Wider<T>(a) * Wider<T>(b) + Wider<T>(c));
  }
};
struct Sad {
  template <class T>
  static T run(T a, T b, T c) {
    return T(c + (a < b ? b - a : a - b));
  }
};

template <template <class, class> class Form, class F>
Run by_type(Type type) {
  switch (type) {
    case Type::s16: return Form<F, int16_t>::run;
    case Type::u16: return Form<F, uint16_t>::run;
    case Type::s32: return Form<F, int32_t>::run;
    case Type::u32: return Form<F, uint32_t>::run;
    case Type::s64: return Form<F, int64_t>::run;
    case Type::u64: return Form<F, uint64_t>::run;
    default: return nullptr;
  }
}
template <class F, class T>
struct One {
  static constexpr Run run = unary<F, T>;
};
template <class F, class T>
struct Two {
  static constexpr Run run = binary<F, T>;
};
template <class F, class T>
struct Three {
  static constexpr Run run = ternary<F, T>;
};
template <class F, class T>
struct Widening {
  static constexpr Run run = wide<T>;
};

// d = c + the four products of bytes; .u32 and .s32 say how a and b are read.
template <class A, class B>
void dp4a(Machine& m, const Op&, const Ins& i) {
  uint64_t *d = m.row(i.a[0]), *a = m.row(i.a[1]), *b = m.row(i.a[2]), *c = m.row(i.a[3]);
  m.each([&](int l) {
    uint32_t sum = uint32_t(c[l]);
    for (int byte = 0; byte < 4; byte++)
      sum += uint32_t(int(A(a[l] >> 8 * byte)) * int(B(b[l] >> 8 * byte)));
    put<int32_t>(d[l], int32_t(sum));
  });
}

bool decode_dp4a(Op& op) {
  if (op.types.size() != 2 || !only(op, {})) return false;
  const bool a = op.types[0] == Type::s32, b = op.types[1] == Type::s32;
  op.run = a ? (b ? dp4a<int8_t, int8_t> : dp4a<int8_t, uint8_t>)
             : (b ? dp4a<uint8_t, int8_t> : dp4a<uint8_t, uint8_t>);
  return true;
}

Run plain(const std::string& name, Type type) {
  if (name == "add") return by_type<Two, Add>(type);
  if (name == "sub") return by_type<Two, Sub>(type);
  if (name == "min") return by_type<Two, Min>(type);
  if (name == "max") return by_type<Two, Max>(type);
  if (name == "div") return by_type<Two, Div>(type);
  if (name == "rem") return by_type<Two, Rem>(type);
  if (name == "neg") return by_type<One, Neg>(type);
  if (name == "abs") return by_type<One, Abs>(type);
  if (name == "sad") return by_type<Three, Sad>(type);
  return nullptr;
}

Run product(const Op& op) {
  const bool adds = op.parts[0] == "mad";
  if (op.has("wide") && bytes_of(op.type()) < 8) return by_type<Widening, void>(op.type());
  if (op.has("lo")) return adds ? by_type<Three, Mad>(op.type()) : by_type<Two, Mul>(op.type());
  if (op.has("hi") && !adds) return by_type<Two, High>(op.type());
  return nullptr;
}

}  // namespace

bool decode_integers(Op& op) {
  const std::string& name = op.parts[0];
  if (name == "dp4a") return decode_dp4a(op);
  if (op.types.size() != 1) return false;
  const bool multiplies = name == "mul" || name == "mad";
  if (!(multiplies ? only(op, {"lo", "hi", "wide"}) : only(op, {}))) return false;
  op.run = multiplies ? product(op) : plain(name, op.type());
  return op.run != nullptr;
}

}  // namespace ptx
