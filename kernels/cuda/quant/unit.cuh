// A unit: the weights that one lane unpacks at a time, as integers with a scale and an offset.
//
// Every quant type is a struct with
//   kBlockValues, kBlockBytes   values and bytes of a block in a file
//   kGroups, kWords             groups of a unit, each with one scale; packed words of a group
//   kHasMin, kOffset            value = scale * (q - kOffset) - min
//   unpack(block, unit, out)    unpacks one of the block's kBlockValues / (4 * kGroups * kWords)
//   column(unit, group)         the group's first column within the block
//   kTwoUnits                   the kernels that load two units before they multiply the first
// Groups are 16 or 32 columns and never straddle a multiple of their size.
#pragma once
#include "load_words.cuh"

namespace sharpi {

// The kernels of one token, as bits of kTwoUnits. A kernel is named there if, for sm_75 to sm_120,
// NVRTC spills no register for it, no GPU has room for two blocks less, instructions a weight grow
// by 5 % at most, and the loads in flight on a multiprocessor nowhere fall and somewhere grow.
enum OneTokenKernel { kInMatvec = 1, kInGateUp = 2, kInDown = 4, kInProduct = 8 };

template <int kGroups, int kWords>
struct Unit {
  int words[kGroups][kWords];  // four q each, the first in the low byte
  float scale[kGroups];
  float min[kGroups];
};

// Splits 4 bytes into nibbles: the low ones into one word, the high ones into another.
__device__ __forceinline__ void split_nibbles(uint32_t bytes, int& low, int& high) {
  low = int(bytes & 0x0f0f0f0f);
  high = int(bytes >> 4 & 0x0f0f0f0f);
}

// Spreads four adjacent bits, one to bit 4 of each byte.
__device__ __forceinline__ int spread_to_bit_4(uint32_t bits) {
  return int((bits & 15) * 0x02040810 & 0x10101010);
}

// Sixteen small integers; word(w) returns four of them as bytes.
template <int... kEntries>
struct Table {
  static __device__ __forceinline__ uint32_t word(int w) {
    constexpr int entries[] = {kEntries...};
    return uint32_t(entries[4 * w] & 255) | uint32_t(entries[4 * w + 1] & 255) << 8 |
           uint32_t(entries[4 * w + 2] & 255) << 16 | uint32_t(entries[4 * w + 3] & 255) << 24;
  }
};

// Looks up four 4-bit numbers in a table: three bits pick an entry from either half of the table,
// and the fourth picks the half.
template <class Table>
__device__ __forceinline__ uint32_t look_up_4(uint32_t low_bits, uint32_t half) {
  const uint32_t first = __byte_perm(Table::word(0), Table::word(1), low_bits);
  const uint32_t second = __byte_perm(Table::word(2), Table::word(3), low_bits);
  return __byte_perm(first, second, half);
}

// Like split_nibbles, but through a table.
template <class Table>
__device__ __forceinline__ void look_up_nibbles(uint32_t bytes, int& low, int& high) {
  const uint32_t low_bits = bytes & 0x77777777;
  const uint32_t half = 0x32103210 | (bytes & 0x88888888) >> 1;
  const uint32_t front = look_up_4<Table>(low_bits & 0xffff, half & 0xffff);
  const uint32_t back = look_up_4<Table>(low_bits >> 16, half >> 16);
  low = int(__byte_perm(front, back, 0x6420));
  high = int(__byte_perm(front, back, 0x7531));
}

}  // namespace sharpi
