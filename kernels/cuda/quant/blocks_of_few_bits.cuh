// The quant types Q1_0, Q2_0, TQ1_0, TQ2_0 and NVFP4; a unit is 32 columns.
#pragma once
#include "blocks_of_256.cuh"

namespace sharpi {

// Blocks of 64 or 128 values in order.
template <int kValues>
struct BlockInOrder {
  static constexpr int kBlockValues = kValues, kBlockBytes = 18;
  static constexpr int kGroups = 1, kWords = 8;
  static constexpr bool kHasMin = false;
  static constexpr int kOffset = 1;
  using Unit = sharpi::Unit<1, 8>;

  static __device__ __forceinline__ int column(int unit, int) { return 32 * unit; }
};

struct Q1_0 : BlockInOrder<128> {
  static constexpr int kTwoUnits = kInMatvec | kInGateUp | kInDown | kInProduct;

  static __device__ __forceinline__ void unpack(const uint8_t* block, int unit, Unit& out) {
    uint32_t bits[1];
    load_words_at_2(block + 2 + 4 * unit, bits);
#pragma unroll
    for (int w = 0; w < 8; w++) out.words[0][w] = spread_to_bit_4(bits[0] >> 4 * w) >> 3;
    out.scale[0] = load_half(block);
  }
};

struct Q2_0 : BlockInOrder<64> {
  static constexpr int kTwoUnits = kInMatvec | kInGateUp;

  static __device__ __forceinline__ void unpack(const uint8_t* block, int unit, Unit& out) {
    uint32_t bytes[2];
    load_words_at_2(block + 2 + 8 * unit, bytes);
#pragma unroll
    for (int w = 0; w < 8; w++) {
      const uint32_t x = bytes[w / 4] >> 8 * (w % 4) & 255;
      out.words[0][w] = int((x | x << 6 | x << 12 | x << 18) & 0x03030303);
    }
    out.scale[0] = load_half(block);
  }
};

struct TQ2_0 : BlockOf256<66, 1, 8, false, 1> {
  static constexpr int kTwoUnits = kInGateUp | kInProduct;

  static __device__ __forceinline__ int column(int unit, int) { return 32 * unit; }

  static __device__ __forceinline__ void unpack(const uint8_t* block, int unit, Unit& out) {
    uint32_t bytes[8];
    load_words_at_2(block + 32 * (unit >> 2), bytes);
#pragma unroll
    for (int w = 0; w < 8; w++) out.words[0][w] = int(bytes[w] >> 2 * (unit & 3) & 0x03030303);
    out.scale[0] = load_half(block + 64);
  }
};

// Returns the base-3 digits that multiplying by power = 3^i brings to the top of four bytes.
__device__ __forceinline__ int ternary_digits(uint32_t bytes, uint32_t power) {
  const uint32_t even = (bytes & 0x00ff00ff) * power & 0x00ff00ff;
  const uint32_t odd = (bytes >> 8 & 0x00ff00ff) * power & 0x00ff00ff;
  return int((even * 3 >> 8 & 0x00ff00ff) | (odd * 3 & 0xff00ff00));
}

// A unit is digit i of 32 bytes; or digits 2i and 2i + 1 of the 16 bytes that follow; or their last
// digit and all four of the last 4 bytes.
struct TQ1_0 : BlockOf256<54, 1, 8, false, 1> {
  static constexpr int kTwoUnits = kInProduct;

  static __device__ __forceinline__ int column(int unit, int) { return 32 * unit; }

  static __device__ __forceinline__ uint32_t power(int digit) {
    return digit == 0 ? 1 : digit == 1 ? 3 : digit == 2 ? 9 : digit == 3 ? 27 : 81;
  }

  static __device__ __forceinline__ void unpack(const uint8_t* block, int unit, Unit& out) {
    uint32_t bytes[4], more[4];
    load_words_at_2(block + (unit < 5 ? 0 : 32), bytes);
    load_words_at_2(block + 16, more);
    uint32_t last[1];
    load_words_at_2(block + 48, last);
    const int digit = unit < 5 ? unit : 2 * (unit - 5), step = unit < 5 ? 0 : 1;
#pragma unroll
    for (int w = 0; w < 4; w++) {
      const uint32_t back = unit == 7 ? last[0] : unit < 5 ? more[w] : bytes[w];
      out.words[0][w] = ternary_digits(bytes[w], power(digit));
      out.words[0][w + 4] = ternary_digits(back, power(unit == 7 ? w : digit + step));
    }
    out.scale[0] = load_half(block + 52);
  }
};

struct NVFP4 {
  static constexpr int kTwoUnits = kInMatvec | kInGateUp;

  static constexpr int kBlockValues = 64, kBlockBytes = 36;
  static constexpr int kGroups = 2, kWords = 4;
  static constexpr bool kHasMin = false;
  static constexpr int kOffset = 0;
  using Unit = sharpi::Unit<2, 4>;

  static __device__ __forceinline__ int column(int unit, int group) {
    return 32 * unit + 16 * group;
  }

  static __device__ __forceinline__ void unpack(const uint8_t* block, int unit, Unit& out) {
    const uint32_t codes = load_word(block) >> 16 * unit;
#pragma unroll
    for (int g = 0; g < 2; g++) {
#pragma unroll
      for (int w = 0; w < 2; w++)
        look_up_nibbles<Table<SHARPI_E2M1_TWICE>>(load_word(block + 4 + 16 * unit + 8 * g + 4 * w),
                                                  out.words[g][w], out.words[g][w + 2]);
      out.scale[g] = half_of_e4m3(codes >> 8 * g & 255);
    }
  }

  // Returns half of the number with 4 exponent bits and 3 mantissa bits, because the table holds
  // doubled values; read as a half float it is 2^8 too small. The code for NaN gives 0, as in ggml.
  static __device__ __forceinline__ float half_of_e4m3(uint32_t code) {
    return code == 0x7f ? 0.f : half_bits((code & 0x7f) << 7) * 128.f;
  }
};

}  // namespace sharpi
