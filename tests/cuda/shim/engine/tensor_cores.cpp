// Products of tensor cores by the instructions' definitions (PTX ISA, "Matrix Fragments"). Each
// lane computes its part of the result from the parts of the operands that all lanes gave.
#include <cstring>

#include "../cuda_fp16.h"
#include "warp.h"

namespace emulator {
namespace {

constexpr int kMostColumns = 32;

// What a lane holds of the operands: of bytes, a is 16 x 32 and b 32 x 8.
struct ByteOperands {
  int8_t a[4][4], b[2][4];
};

// The same of halves: a is 16 x 16, b 16 x 8.
struct HalfOperands {
  uint16_t a[4][2], b[2][2];
};

// Row l / 4 + 8 * i of a, for i 0 and 1, and column 2 * (l % 4) + i of b, for lane l.
template <class Value>
struct OwnRows {
  Value a[2][kMostColumns], b[2][kMostColumns];
};

// Gives this lane's operands, and meets the others.
template <class Operands>
void meet_with(const void* a, size_t a_bytes, const void* b, size_t b_bytes, Site site) {
  Operands own = {};
  memcpy(own.a, a, a_bytes);
  memcpy(own.b, b, b_bytes);
  meet_warp(&own, sizeof own, site);
}

template <class Operands>
const Operands& taken_from(unsigned lane) {
  return *static_cast<const Operands*>(taken_by(lane));
}

// a's byte (row, k) is in lane 4 * (row % 8) + k % 16 / 4, part row / 8 + 2 * (k / 16), byte k % 4;
// b's byte (k, column) in lane 4 * column + k % 16 / 4, part k / 16.
void collect(int lane, int columns, OwnRows<int>& rows) {
  for (int k = 0; k < columns; k++)
    for (int i = 0; i < 2; i++) {
      const auto& a = taken_from<ByteOperands>(4 * (lane / 4) + k % 16 / 4);
      const auto& b = taken_from<ByteOperands>(4 * (lane % 4 * 2 + i) + k % 16 / 4);
      rows.a[i][k] = a.a[i + 2 * (k / 16)][k % 4];
      rows.b[i][k] = b.b[k / 16][k % 4];
    }
}

// a's half (row, k) is in lane 4 * (row % 8) + k % 8 / 2, part row / 8 + 2 * (k / 8), half k % 2;
// b's half (k, column) in lane 4 * column + k % 8 / 2, part k / 8.
void collect(int lane, int columns, OwnRows<float>& rows) {
  for (int k = 0; k < columns; k++)
    for (int i = 0; i < 2; i++) {
      const auto& a = taken_from<HalfOperands>(4 * (lane / 4) + k % 8 / 2);
      const auto& b = taken_from<HalfOperands>(4 * (lane % 4 * 2 + i) + k % 8 / 2);
      rows.a[i][k] = half_value(a.a[i + 2 * (k / 8)][k % 2]);
      rows.b[i][k] = half_value(b.b[k / 8][k % 2]);
    }
}

// Adds the products to c[i]: row i / 2 of the lane's two, and column i % 2.
template <class Value>
void add_products(int columns, Value* c) {
  OwnRows<Value> rows;
  collect(int(block.running->lane()), columns, rows);
  for (int i = 0; i < 4; i++)
    for (int k = 0; k < columns; k++) c[i] += rows.a[i / 2][k] * rows.b[i % 2][k];
}

}  // namespace
}  // namespace emulator

void emulator_add_byte_products(const void* a, const void* b, int num_bytes, int* c,
                                emulator::Site site) {
  const size_t a_bytes = num_bytes / 2, b_bytes = num_bytes / 4;
  emulator::meet_with<emulator::ByteOperands>(a, a_bytes, b, b_bytes, site);
  emulator::add_products(num_bytes, c);
}

void emulator_add_half_products(const void* a, const void* b, float* c, emulator::Site site) {
  constexpr int kColumns = 16;
  emulator::meet_with<emulator::HalfOperands>(a, 16, b, 8, site);
  emulator::add_products(kColumns, c);
}
