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

constexpr int kRows = 16, kResultColumns = 8;

// The operands of a warp's last product as numbers: a by row, b by column.
template <class Value>
struct Operands {
  Value a[kRows][kMostColumns], b[kResultColumns][kMostColumns];
};

template <class Value>
Operands<Value> operands_of[kMaxThreads / kWarpSize];

template <class Given>
const Given& given_by(int lane) {
  return *static_cast<const Given*>(taken_by(unsigned(lane)));
}

// a's byte (row, k) is in lane 4 * (row % 8) + k % 16 / 4, part row / 8 + 2 * (k / 16), byte k % 4;
// b's byte (k, column) in lane 4 * column + k % 16 / 4, part k / 16.
void collect(int columns, Operands<int>& out) {
  for (int k = 0; k < columns; k++) {
    const int lane = k % 16 / 4;
    for (int row = 0; row < kRows; row++)
      out.a[row][k] = given_by<ByteOperands>(4 * (row % 8) + lane).a[row / 8 + 2 * (k / 16)][k % 4];
    for (int column = 0; column < kResultColumns; column++)
      out.b[column][k] = given_by<ByteOperands>(4 * column + lane).b[k / 16][k % 4];
  }
}

// a's half (row, k) is in lane 4 * (row % 8) + k % 8 / 2, part row / 8 + 2 * (k / 8), half k % 2;
// b's half (k, column) in lane 4 * column + k % 8 / 2, part k / 8.
void collect(int columns, Operands<float>& out) {
  for (int k = 0; k < columns; k++) {
    const int lane = k % 8 / 2;
    for (int row = 0; row < kRows; row++)
      out.a[row][k] =
          half_value(given_by<HalfOperands>(4 * (row % 8) + lane).a[row / 8 + 2 * (k / 8)][k % 2]);
    for (int column = 0; column < kResultColumns; column++)
      out.b[column][k] = half_value(given_by<HalfOperands>(4 * column + lane).b[k / 8][k % 2]);
  }
}

// Gives this lane's operands, meets the others, and adds the products to c[i]: row l / 4 or that
// and 8 more, column 2 * (l % 4) or the next, for lane l. The last lane to come collects for all.
template <class Given, class Value>
void add_products(const Given& given, int columns, Value* c, Site site) {
  auto& operands = operands_of<Value>[block.running->warp()];
  if (meet_warp(&given, sizeof given, site)) collect(columns, operands);
  const int lane = int(block.running->lane());
  for (int i = 0; i < 4; i++) {
    const Value* a = operands.a[lane / 4 + 8 * (i / 2)];
    const Value* b = operands.b[lane % 4 * 2 + i % 2];
    for (int k = 0; k < columns; k++) c[i] += a[k] * b[k];
  }
}

}  // namespace
}  // namespace emulator

void emulator_add_byte_products(const void* a, const void* b, int num_bytes, int* c,
                                emulator::Site site) {
  emulator::ByteOperands given = {};
  memcpy(given.a, a, num_bytes / 2);
  memcpy(given.b, b, num_bytes / 4);
  emulator::add_products(given, num_bytes, c, site);
}

void emulator_add_half_products(const void* a, const void* b, float* c, emulator::Site site) {
  constexpr int kColumns = 16;
  emulator::HalfOperands given = {};
  memcpy(given.a, a, sizeof given.a);
  memcpy(given.b, b, sizeof given.b);
  emulator::add_products(given, kColumns, c, site);
}
