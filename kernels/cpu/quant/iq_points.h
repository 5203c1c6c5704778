// The points of the IQ types' grids as bytes, and the numbers of a block's points.
#pragma once
#include <array>
#include <cstdint>
#include <cstring>

namespace sharpi {

// Byte c belongs to column c: a magnitude, or in the one-bit grid 0, 8 or 16 for -1, 0 or 1.
extern const std::array<uint64_t, 256> kIQ2XXSPoints;
extern const std::array<uint64_t, 512> kIQ2XSPoints;
extern const std::array<uint64_t, 1024> kIQ2SPoints;
extern const std::array<uint32_t, 256> kIQ3XXSPoints;
extern const std::array<uint32_t, 512> kIQ3SPoints;
extern const std::array<uint64_t, 2048> kIQ1Points;

// The seven signs of every code with the eighth, which makes the number of set bits even.
extern const std::array<uint8_t, 128> kEvenSigns;

}  // namespace sharpi

namespace {
using namespace sharpi;

inline uint16_t short_at(const uint8_t* p) {
  uint16_t x;
  memcpy(&x, p, sizeof x);
  return x;
}

// For each type: the points by number, and the number of point i of a block's 256 values.
struct PointsOfIQ2_XXS {
  using Point = uint64_t;
  static const Point* at(unsigned number) { return kIQ2XXSPoints.data() + number; }
  static unsigned number(const uint8_t* block, unsigned i) { return block[2 + i / 4 * 8 + i % 4]; }
};
struct PointsOfIQ2_XS {
  using Point = uint64_t;
  static const Point* at(unsigned number) { return kIQ2XSPoints.data() + number; }
  static unsigned number(const uint8_t* block, unsigned i) {
    return short_at(block + 2 + 2 * i) & 511u;
  }
};
struct PointsOfIQ2_S {
  using Point = uint64_t;
  static const Point* at(unsigned number) { return kIQ2SPoints.data() + number; }
  static unsigned number(const uint8_t* block, unsigned i) {
    return block[2 + i] | (unsigned(block[66 + i / 4]) << (8 - i % 4 * 2) & 0x300);
  }
};
struct PointsOfIQ3_XXS {
  using Point = uint32_t;
  static const Point* at(unsigned number) { return kIQ3XXSPoints.data() + number; }
  static unsigned number(const uint8_t* block, unsigned i) { return block[2 + i]; }
};
struct PointsOfIQ3_S {
  using Point = uint32_t;
  static const Point* at(unsigned number) { return kIQ3SPoints.data() + number; }
  static unsigned number(const uint8_t* block, unsigned i) {
    return block[2 + i] | (unsigned(block[66 + i / 8]) << (8 - i % 8) & 0x100);
  }
};
struct PointsOfIQ1_S {
  using Point = uint64_t;
  static const Point* at(unsigned number) { return kIQ1Points.data() + number; }
  static unsigned number(const uint8_t* block, unsigned i) {
    return block[2 + i] | (unsigned(short_at(block + 34 + i / 4 * 2)) << 8 >> (i % 4 * 3) & 0x700);
  }
};
struct PointsOfIQ1_M {
  using Point = uint64_t;
  static const Point* at(unsigned number) { return kIQ1Points.data() + number; }
  static unsigned number(const uint8_t* block, unsigned i) {
    return block[i] | (unsigned(block[32 + i / 2]) << (8 - i % 2 * 4) & 0x700);
  }
};

// Returns point i of a block.
template <class Points>
inline typename Points::Point point_at(const uint8_t* block, unsigned i) {
  return *Points::at(Points::number(block, i));
}

// Points of kRows blocks, transposed: point i of all rows is stored together. The eight columns of
// row r go to the place from which one shuffle of two registers separates the first and the last
// four columns, rows in order.
template <class Points, int kRows>
struct TurnedPoints {
  using Point = typename Points::Point;
  static constexpr int kCount = 256 / sizeof(Point);
  alignas(64) Point points[kCount][kRows];

  static constexpr int place(int row) {
    return sizeof(Point) == 4 ? row : row / 4 * 2 + row % 2 + row / 2 % 2 * (kRows / 2);
  }
  [[gnu::always_inline]] void set_row(int row, const uint8_t* block) {
    Point* to = points[0] + place(row);
#pragma GCC unroll 64
    for (int i = 0; i < kCount; i++) to[i * kRows] = point_at<Points>(block, unsigned(i));
  }
};

}  // namespace
