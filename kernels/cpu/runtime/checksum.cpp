// Mixes bytes into eight 64-bit lanes, for checksums of large files at the speed of memory. Each
// step is a bijection of its lane for given data and of the data for a given lane, so a change in
// one word always changes the result.
#include <cstddef>
#include <cstdint>
#include <cstring>

#define SHARPI_API extern "C" __attribute__((visibility("default")))

namespace {

constexpr int LANES = 8;
constexpr size_t ROW = LANES * sizeof(uint64_t);
constexpr uint64_t FACTOR = 0x9E3779B97F4A7C15;  // odd, its bits without a pattern
constexpr int TURN = 29;

inline void mix_row(const unsigned char* row, uint64_t* lanes) {
  uint64_t words[LANES];
  std::memcpy(words, row, ROW);
  for (int i = 0; i < LANES; i++) {
    const uint64_t product = (lanes[i] ^ words[i]) * FACTOR;
    lanes[i] = product << TURN | product >> (64 - TURN);
  }
}

}  // namespace

// Mixes `bytes` into the lanes; a last row that is not full is filled up with zeros.
SHARPI_API void sharpi_mix_lanes(const void* data, size_t bytes, uint64_t* lanes) {
  const unsigned char* at = static_cast<const unsigned char*>(data);
  uint64_t own[LANES];
  std::memcpy(own, lanes, ROW);
  for (; bytes >= ROW; bytes -= ROW, at += ROW) mix_row(at, own);
  if (bytes != 0) {
    unsigned char rest[ROW] = {};
    std::memcpy(rest, at, bytes);
    mix_row(rest, own);
  }
  std::memcpy(lanes, own, ROW);
}
