// Moves, selections, logic and shifts: operations on the bits of registers.
#include "machine.h"

namespace ptx {
namespace {

uint64_t mask_of(const Op& op) {
  const int bytes = bytes_of(op.type());
  return op.type() == Type::pred ? 1 : bytes == 8 ? ~uint64_t(0) : (uint64_t(1) << 8 * bytes) - 1;
}

template <class F>
void logic(Machine& m, const Op& op, const Ins& i) {
  const uint64_t mask = mask_of(op);
  uint64_t *d = m.row(i.a[0]), *a = m.row(i.a[1]), *b = m.row(i.num > 2 ? i.a[2] : i.a[1]);
  m.each([&](int l) { d[l] = F::run(a[l], b[l]) & mask; });
}
struct And {
  static uint64_t run(uint64_t a, uint64_t b) { return a & b; }
};
struct Or {
  static uint64_t run(uint64_t a, uint64_t b) { return a | b; }
};
struct Xor {
  static uint64_t run(uint64_t a, uint64_t b) { return a ^ b; }
};
struct Not {
  static uint64_t run(uint64_t a, uint64_t) { return ~a; }
};

// Between one register and a vector of narrower ones, or plain; narrower parts come lowest first.
void move(Machine& m, const Op& op, const Ins& i) {
  const uint64_t mask = mask_of(op);
  if (i.num == 2) {
    uint64_t *d = m.row(i.a[0]), *a = m.row(i.a[1]);
    m.each([&](int l) { d[l] = a[l] & mask; });
    return;
  }
  const int parts = i.num - 1, bits = 8 * bytes_of(op.type()) / parts;
  const uint64_t part = (uint64_t(1) << bits) - 1;
  const bool splits = i.inverted >> 30 & 1;  // the lowering marks a vector on the left
  m.each([&](int l) {
    if (splits) {
      const uint64_t value = m.row(i.a[parts])[l];
      for (int p = 0; p < parts; p++) m.row(i.a[p])[l] = value >> p * bits & part;
      return;
    }
    uint64_t value = 0;
    for (int p = 0; p < parts; p++) value |= (m.row(i.a[1 + p])[l] & part) << p * bits;
    m.row(i.a[0])[l] = value;
  });
}

void select(Machine& m, const Op& op, const Ins& i) {
  const uint64_t mask = mask_of(op);
  uint64_t *d = m.row(i.a[0]), *a = m.row(i.a[1]), *b = m.row(i.a[2]), *p = m.row(i.a[3]);
  m.each([&](int l) { d[l] = (p[l] & 1 ? a[l] : b[l]) & mask; });
}

// Amounts are unsigned 32-bit numbers, and those above the width are taken as the width.
template <class T, bool kLeft>
void shift(Machine& m, const Op&, const Ins& i) {
  constexpr uint32_t kBits = 8 * sizeof(T);
  uint64_t *d = m.row(i.a[0]), *a = m.row(i.a[1]), *b = m.row(i.a[2]);
  m.each([&](int l) {
    const uint32_t by = uint32_t(b[l]);
    const T value = get<T>(a[l]);
    const T filled = !kLeft && value < T(0) ? T(-1) : T(0);
    put<T>(d[l], by >= kBits ? filled : kLeft ? T(value << by) : T(value >> by));
  });
}

template <bool kLeft>
Run shift_of(Type type) {
  switch (type) {
    case Type::b16:
    case Type::u16: return shift<uint16_t, kLeft>;
    case Type::b32:
    case Type::u32: return shift<uint32_t, kLeft>;
    case Type::b64:
    case Type::u64: return shift<uint64_t, kLeft>;
    case Type::s16: return kLeft ? nullptr : shift<int16_t, kLeft>;
    case Type::s32: return kLeft ? nullptr : shift<int32_t, kLeft>;
    case Type::s64: return kLeft ? nullptr : shift<int64_t, kLeft>;
    default: return nullptr;
  }
}

// The 64 bits b:a shifted, of which .l takes the upper half and .r the lower.
void funnel(Machine& m, const Op& op, const Ins& i) {
  uint64_t *d = m.row(i.a[0]), *a = m.row(i.a[1]), *b = m.row(i.a[2]), *c = m.row(i.a[3]);
  const bool left = op.has("l"), wraps = op.has("wrap");
  m.each([&](int l) {
    const uint64_t both = uint64_t(uint32_t(b[l])) << 32 | uint32_t(a[l]);
    const uint32_t by = wraps ? uint32_t(c[l]) & 31 : uint32_t(c[l]) > 32 ? 32 : uint32_t(c[l]);
    d[l] = uint32_t(left ? both << by >> 32 : both >> by);
  });
}

// Each nibble of c picks one of the eight bytes b:a, or, with its top bit, eight copies of its
// sign.
void permute(Machine& m, const Op&, const Ins& i) {
  uint64_t *d = m.row(i.a[0]), *a = m.row(i.a[1]), *b = m.row(i.a[2]), *c = m.row(i.a[3]);
  m.each([&](int l) {
    const uint64_t bytes = uint64_t(uint32_t(b[l])) << 32 | uint32_t(a[l]);
    uint32_t out = 0;
    for (int byte = 0; byte < 4; byte++) {
      const uint32_t selector = uint32_t(c[l]) >> 4 * byte & 15;
      uint32_t value = bytes >> 8 * (selector & 7) & 255;
      if (selector & 8) value = value & 128 ? 255 : 0;
      out |= value << 8 * byte;
    }
    d[l] = out;
  });
}

void lookup3(Machine& m, const Op&, const Ins& i) {
  uint64_t *d = m.row(i.a[0]), *a = m.row(i.a[1]), *b = m.row(i.a[2]), *c = m.row(i.a[3]);
  uint64_t* table = m.row(i.a[4]);
  m.each([&](int l) {
    uint32_t out = 0;
    for (int bit = 0; bit < 32; bit++) {
      const int index = int((a[l] >> bit & 1) << 2 | (b[l] >> bit & 1) << 1 | (c[l] >> bit & 1));
      out |= uint32_t(table[l] >> index & 1) << bit;
    }
    d[l] = out;
  });
}

void reverse(Machine& m, const Op& op, const Ins& i) {
  const int bits = 8 * bytes_of(op.type());
  uint64_t *d = m.row(i.a[0]), *a = m.row(i.a[1]);
  m.each([&](int l) {
    uint64_t out = 0;
    for (int bit = 0; bit < bits; bit++) out |= (a[l] >> bit & 1) << (bits - 1 - bit);
    d[l] = out;
  });
}

void count(Machine& m, const Op& op, const Ins& i) {
  const uint64_t mask = mask_of(op);
  const bool zeros = op.parts[0] == "clz";
  const int bits = 8 * bytes_of(op.type());
  uint64_t *d = m.row(i.a[0]), *a = m.row(i.a[1]);
  m.each([&](int l) {
    const uint64_t value = a[l] & mask;
    if (!zeros) d[l] = uint64_t(__builtin_popcountll(value));
    else d[l] = value ? uint64_t(__builtin_clzll(value) - (64 - bits)) : uint64_t(bits);
  });
}

// The place of the highest bit (of signed numbers: that differs from the sign), or -1.
void find_bit(Machine& m, const Op& op, const Ins& i) {
  const uint64_t mask = mask_of(op);
  const int bits = 8 * bytes_of(op.type());
  const bool amount = op.has("shiftamt");
  uint64_t *d = m.row(i.a[0]), *a = m.row(i.a[1]);
  m.each([&](int l) {
    uint64_t value = a[l] & mask;
    if (is_signed(op.type()) && value >> (bits - 1)) value = ~value & mask;
    const int place = value ? 63 - __builtin_clzll(value) : -1;
    d[l] = uint32_t(place < 0 ? -1 : amount ? bits - 1 - place : place);
  });
}

// Places and lengths are the lower 8 bits of their operands.
void insert(Machine& m, const Op& op, const Ins& i) {
  const int bits = 8 * bytes_of(op.type());
  uint64_t *f = m.row(i.a[0]), *a = m.row(i.a[1]), *b = m.row(i.a[2]), *c = m.row(i.a[3]);
  uint64_t* length = m.row(i.a[4]);
  m.each([&](int l) {
    uint64_t out = b[l];
    const int place = int(c[l] & 255), num = int(length[l] & 255);
    for (int bit = 0; bit < num && place + bit < bits && bit < bits; bit++) {
      out &= ~(uint64_t(1) << (place + bit));
      out |= (a[l] >> bit & 1) << (place + bit);
    }
    f[l] = out & mask_of(op);
  });
}

void extract(Machine& m, const Op& op, const Ins& i) {
  const int msb = 8 * bytes_of(op.type()) - 1;
  uint64_t *d = m.row(i.a[0]), *a = m.row(i.a[1]), *b = m.row(i.a[2]), *c = m.row(i.a[3]);
  m.each([&](int l) {
    const int place = int(b[l] & 255), num = int(c[l] & 255);
    const int last = place + num - 1 < msb ? place + num - 1 : msb;
    const uint64_t sign = is_signed(op.type()) && num ? a[l] >> last & 1 : 0;
    uint64_t out = 0;
    for (int bit = 0; bit <= msb; bit++)
      out |= (bit < num && place + bit <= msb ? a[l] >> (place + bit) & 1 : sign) << bit;
    d[l] = out;
  });
}

Run logic_of(const std::string& name) {
  if (name == "and") return logic<And>;
  if (name == "or") return logic<Or>;
  if (name == "xor") return logic<Xor>;
  return name == "not" ? logic<Not> : nullptr;
}

Run simple(const std::string& name, Type type) {
  if (name == "mov") return move;
  if (name == "selp") return select;
  if (name == "shl") return shift_of<true>(type);
  if (name == "shr") return shift_of<false>(type);
  if (name == "prmt") return permute;
  if (name == "lop3") return lookup3;
  if (name == "brev") return reverse;
  if (name == "popc" || name == "clz") return count;
  if (name == "bfi") return insert;
  if (name == "bfe") return extract;
  return logic_of(name);
}

}  // namespace

bool decode_bits(Op& op) {
  const std::string& name = op.parts[0];
  if (op.types.size() != 1) return false;
  if (name == "shf" && only(op, {"l", "r", "wrap", "clamp"})) op.run = funnel;
  else if (name == "bfind" && only(op, {"shiftamt"})) op.run = find_bit;
  else if (only(op, {})) op.run = simple(name, op.type());
  return op.run != nullptr;
}

}  // namespace ptx
