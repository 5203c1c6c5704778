// The points of the IQ types' grids as bytes: magnitudes for 2 and 3 bits, codes for 1.
#pragma once
#include <array>
#include <cstdint>

namespace sharpi {

// Byte c is column c's.
extern const std::array<uint64_t, 256> kIQ2XXSPoints;
extern const std::array<uint64_t, 512> kIQ2XSPoints;
extern const std::array<uint64_t, 1024> kIQ2SPoints;
extern const std::array<uint32_t, 256> kIQ3XXSPoints;
extern const std::array<uint32_t, 512> kIQ3SPoints;
extern const std::array<uint64_t, 2048> kIQ1Points;  // 0, 8, 16 for -1, 0, 1

// The seven signs of every code with the eighth, which makes their number even.
extern const std::array<uint8_t, 128> kEvenSigns;

}  // namespace sharpi
