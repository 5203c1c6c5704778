// The grids as tables of bytes, computed by the compiler.
#include "iq_points.h"

#include <bit>
#include <cstddef>

#include "iq_grids.h"

namespace sharpi {
namespace {

template <class Point, size_t kPoints, size_t kValues>
constexpr std::array<Point, kPoints> expand(const uint16_t (&grid)[kPoints],
                                            const uint8_t (&values)[kValues]) {
  constexpr int kColumns = sizeof(Point), kBits = 16 / kColumns;
  std::array<Point, kPoints> points{};
  for (size_t i = 0; i < kPoints; i++)
    for (int c = 0; c < kColumns; c++)
      points[i] |= Point(values[grid[i] >> (kBits * c) & ((1 << kBits) - 1)]) << (8 * c);
  return points;
}

constexpr std::array<uint8_t, 128> even_signs() {
  std::array<uint8_t, 128> signs{};
  for (unsigned code = 0; code < 128; code++)
    signs[code] = uint8_t(code | (std::popcount(code) & 1) << 7);
  return signs;
}

constexpr uint8_t kOfIQ2[] = {8, 25, 43};
constexpr uint8_t kOfIQ3XXS[] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr uint8_t kOfIQ3S[] = {1, 3, 5, 7, 9, 11, 13, 15};
constexpr uint8_t kOfIQ1[] = {0, 8, 16};

}  // namespace

constinit const std::array<uint64_t, 256> kIQ2XXSPoints = expand<uint64_t>(kIQ2XXSGrid, kOfIQ2);
constinit const std::array<uint64_t, 512> kIQ2XSPoints = expand<uint64_t>(kIQ2XSGrid, kOfIQ2);
constinit const std::array<uint64_t, 1024> kIQ2SPoints = expand<uint64_t>(kIQ2SGrid, kOfIQ2);
constinit const std::array<uint32_t, 256> kIQ3XXSPoints = expand<uint32_t>(kIQ3XXSGrid, kOfIQ3XXS);
constinit const std::array<uint32_t, 512> kIQ3SPoints = expand<uint32_t>(kIQ3SGrid, kOfIQ3S);
constinit const std::array<uint64_t, 2048> kIQ1Points = expand<uint64_t>(kIQ1SGrid, kOfIQ1);
constinit const std::array<uint8_t, 128> kEvenSigns = even_signs();

}  // namespace sharpi
