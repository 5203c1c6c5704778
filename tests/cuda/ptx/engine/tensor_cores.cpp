// mma.sync and ldmatrix, by the tables of fragments in the PTX ISA ("Matrix Fragments for mma").
#include "small_floats.h"

namespace ptx {
namespace {

// A lane's place: group (lane / 4) and its number in the group (lane % 4).
struct Place {
  int group, member;
  explicit Place(int lane) : group(lane >> 2), member(lane & 3) {}
};

struct Cell {
  int row, column;
};

// Where element e of a lane's fragment lies; `per` elements are in a 32-bit register.
// A (m x k): registers alternate between rows `group` and `group + 8` (where m is 16), then the
// next 4 * per columns. B (k x n): one column, `group`. C, D: two neighbours in a row.
Cell cell_a(Place at, int e, int per, int m) {
  const int reg = e / per, rows = m / 8;
  return {at.group + 8 * (reg % rows), at.member * per + e % per + 4 * per * (reg / rows)};
}
Cell cell_b(Place at, int e, int per) {
  return {at.member * per + e % per + 4 * per * (e / per), at.group};
}
Cell cell_c(Place at, int e) { return {at.group + 8 * (e / 2), at.member * 2 + e % 2}; }

struct Shape {
  int m, n, k;
};

struct Words {
  int a, b, c, per;  // registers of a lane; elements in a register of a and b
};

Words words(Shape shape, int bits) {
  const int per = 32 / bits;
  return {shape.m * shape.k / (kWarp * per), shape.n * shape.k / (kWarp * per),
          shape.m * shape.n / kWarp, per};
}

double element(Type type, uint64_t word, int index) {
  const int bits = 8 * bytes_of(type);
  const uint64_t part = word >> index * bits;
  switch (type) {
    case Type::s8: return int8_t(part);
    case Type::u8: return uint8_t(part);
    case Type::f16: return from_small(uint16_t(part), kHalf);
    default: return from_small(uint16_t(part), kBrain);
  }
}

struct Matrices {
  double a[16][32], b[32][8], c[16][8];
};

void gather(Machine& m, const Op& op, const Ins& i, int base, const Words& w, int rows,
            Matrices& out) {
  for (int lane = 0; lane < kWarp; lane++) {
    const Place at(lane);
    const auto word = [&](int operand) { return m.row(i.a[operand])[base + lane]; };
    for (int e = 0; e < w.a * w.per; e++) {
      const Cell cell = cell_a(at, e, w.per, rows);
      out.a[cell.row][cell.column] = element(op.types[1], word(w.c + e / w.per), e % w.per);
    }
    for (int e = 0; e < w.b * w.per; e++) {
      const Cell cell = cell_b(at, e, w.per);
      out.b[cell.row][cell.column] = element(op.types[2], word(w.c + w.a + e / w.per), e % w.per);
    }
    for (int e = 0; e < w.c; e++) {
      const Cell cell = cell_c(at, e);
      const uint64_t value = word(w.c + w.a + w.b + e);
      out.c[cell.row][cell.column] =
          op.types[3] == Type::s32 ? double(int32_t(value)) : double(get<float>(value));
    }
  }
}

// Sums are exact in a double for integers; for halves they are rounded once, at the end. A GPU
// rounds (towards zero) more often, so that last bits differ.
template <int kM, int kN, int kK>
void multiply(Machine& m, const Op& op, const Ins& i, int base, uint32_t) {
  const Words w = words({kM, kN, kK}, 8 * bytes_of(op.types[1]));
  if (i.num != 2 * w.c + w.a + w.b) m.fail("wrong number of registers", base);
  Matrices x;
  gather(m, op, i, base, w, kM, x);
  for (int lane = 0; lane < kWarp; lane++) {
    for (int e = 0; e < w.c; e++) {
      const Cell cell = cell_c(Place(lane), e);
      double sum = x.c[cell.row][cell.column];
      for (int k = 0; k < kK; k++) sum += x.a[cell.row][k] * x.b[k][cell.column];
      uint64_t& d = m.row(i.a[e])[base + lane];
      if (op.types[0] == Type::s32) put<int32_t>(d, int32_t(uint32_t(int64_t(sum))));
      else put<float>(d, float(sum));
    }
  }
}

// Lanes 8 * j ... give the addresses of the rows of matrix j; each lane gets of row lane / 4 the
// elements 2 * (lane % 4) and the next; transposed: of column lane / 4.
void load_matrices(Machine& m, const Op& op, const Ins& i, int base, uint32_t) {
  const int num = i.num - 2;
  uint16_t values[4][8][8];
  for (int lane = 0; lane < 8 * num; lane++) {
    const int l = base + lane;
    const uint64_t address = m.row(i.a[num])[l] + uint64_t(int64_t(i.a[num + 1]));
    memcpy(values[lane / 8][lane % 8], m.at(Space::shared, address, 16, Machine::Access::read, l),
           16);
  }
  for (int lane = 0; lane < kWarp; lane++) {
    const int row = lane / 4, column = lane % 4 * 2;
    for (int matrix = 0; matrix < num; matrix++) {
      const auto& v = values[matrix];
      const uint32_t low = op.has("trans") ? v[column][row] : v[row][column];
      const uint32_t high = op.has("trans") ? v[column + 1][row] : v[row][column + 1];
      m.row(i.a[matrix])[base + lane] = high << 16 | low;
    }
  }
}

bool is_byte(Type type) { return type == Type::s8 || type == Type::u8; }

WarpRun multiply_of(const Op& op) {
  const Type a = op.types[1], b = op.types[2];
  if (op.types[0] != op.types[3]) return nullptr;
  if (is_byte(a) && is_byte(b) && op.types[0] == Type::s32) {
    if (op.has("m8n8k16")) return multiply<8, 8, 16>;
    if (op.has("m16n8k16")) return multiply<16, 8, 16>;
    if (op.has("m16n8k32")) return multiply<16, 8, 32>;
  }
  if (a == b && (a == Type::f16 || a == Type::bf16) && op.types[0] == Type::f32) {
    if (op.has("m16n8k8")) return multiply<16, 8, 8>;
    if (op.has("m16n8k16")) return multiply<16, 8, 16>;
  }
  return nullptr;
}

}  // namespace

bool decode_tensor_cores(Op& op) {
  op.kind = Kind::warp, op.mask_operand = -1;
  if (op.parts[0] == "mma" && op.has("sync") && op.has("aligned") && op.has("row") &&
      op.has("col") && op.types.size() == 4 &&
      only(op, {"sync", "aligned", "row", "col", "m8n8k16", "m16n8k8", "m16n8k16", "m16n8k32"}))
    op.warp_run = multiply_of(op);
  if (op.parts[0] == "ldmatrix" && op.has("m8n8") && op.has("shared") && op.has("aligned") &&
      op.types.size() == 1 && op.type() == Type::b16 &&
      only(op, {"sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared"}))
    op.warp_run = load_matrices;
  return op.warp_run != nullptr;
}

}  // namespace ptx
