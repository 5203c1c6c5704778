// atom and red: one lane after the other.
#include <algorithm>

#include "machine.h"

namespace ptx {
namespace {

template <class T>
T changed(const std::string& what, T old, T b) {
  if (what == "add") return T(old + b);
  if (what == "min") return std::min(old, b);
  if (what == "max") return std::max(old, b);
  if constexpr (T(0.5) == T(0)) {
    if (what == "and") return T(old & b);
    if (what == "or") return T(old | b);
    if (what == "xor") return T(old ^ b);
    if (what == "inc") return old >= b ? T(0) : T(old + 1);
    if (what == "dec") return old == 0 || old > b ? b : T(old - 1);
  }
  return b;  // exch
}

const char* const kWhats[] = {"add", "min", "max", "and", "or", "xor", "inc", "dec", "exch", "cas"};

std::string what_of(const Op& op) {
  for (const char* what : kWhats)
    if (op.has(what)) return what;
  return "";
}

// Operands of atom: d, the base, its offset, b and, of cas, c; of red all but d.
template <class T>
void run(Machine& m, const Op& op, const Ins& i) {
  const bool returns = op.parts[0] == "atom";
  const int32_t* a = i.a + (returns ? 1 : 0);
  const std::string what = what_of(op);
  m.each([&](int l) {
    const uint64_t address = m.row(a[0])[l] + uint64_t(int64_t(a[1]));
    uint8_t* place = m.at(op.space, address, sizeof(T), Machine::Access::both, l);
    T old, value = get<T>(m.row(a[2])[l]);
    memcpy(&old, place, sizeof old);
    if (what == "cas") value = old == value ? get<T>(m.row(a[3])[l]) : old;
    else value = changed(what, old, value);
    memcpy(place, &value, sizeof value);
    if (returns) put<T>(m.row(i.a[0])[l], old);
  });
}

Run run_of(Type type) {
  switch (type) {
    case Type::s32: return run<int32_t>;
    case Type::u32:
    case Type::b32: return run<uint32_t>;
    case Type::s64: return run<int64_t>;
    case Type::u64:
    case Type::b64: return run<uint64_t>;
    case Type::f32: return run<float>;
    default: return nullptr;
  }
}

}  // namespace

bool decode_atomics(Op& op) {
  if ((op.parts[0] != "atom" && op.parts[0] != "red") || op.types.size() != 1) return false;
  if (!only(op, {"global", "shared", "relaxed", "acquire", "release", "acq_rel", "cta", "gpu",
                 "sys", "add", "min", "max", "and", "or", "xor", "inc", "dec", "exch", "cas"}))
    return false;
  if (what_of(op).empty()) return false;
  op.run = run_of(op.type());
  return op.run != nullptr;
}

}  // namespace ptx
