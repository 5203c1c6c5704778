// The quant types with blocks of 256 values that are points of a grid (iq_grids.h): a unit is 32
// columns, four points of eight values or eight points of four.
#pragma once
#include "blocks_of_256.cuh"
#include "iq_grids.h"

namespace sharpi {

// The values that the codes of a grid's columns stand for, as bytes.
constexpr uint32_t kValuesOfIQ2 = 0x002b1908;  // 8, 25, 43
constexpr uint32_t kLowValuesOfIQ3_XXS = 0x1c140c04, kHighValuesOfIQ3_XXS = 0x3e342c24;
constexpr uint32_t kLowValuesOfIQ3_S = 0x07050301, kHighValuesOfIQ3_S = 0x0f0d0b09;
constexpr uint32_t kValuesOfIQ1Plus = 0x000901f9, kValuesOfIQ1Minus = 0x0007fff7;  // 8 * v + or - 1

// Spreads eight codes of two bits into nibbles.
__device__ __forceinline__ uint32_t codes_as_nibbles(uint32_t point) {
  point = (point | point << 8) & 0x00ff00ff;
  point = (point | point << 4) & 0x0f0f0f0f;
  return (point | point << 2) & 0x33333333;
}

// Negates those of four nonzero bytes whose bit in `signs` is set.
__device__ __forceinline__ int with_signs(uint32_t bytes, uint32_t signs) {
  const uint32_t minus = (signs & 15) * 0x00204081 & 0x01010101;
  return int((bytes ^ minus * 255) + minus);
}

// Returns seven sign bits and the eighth, which makes the number of set bits even.
__device__ __forceinline__ uint32_t even_signs(uint32_t code) {
  return (code & 127) | (__popc(code & 127) & 1) << 7;
}

// Writes point i of a unit, eight columns, to words 2 * i and 2 * i + 1.
template <class Words>
__device__ __forceinline__ void put_point(Words& words, int i, uint32_t point, uint32_t signs) {
  const uint32_t codes = codes_as_nibbles(point);
  words[2 * i] = with_signs(__byte_perm(kValuesOfIQ2, 0, codes & 0xffff), signs);
  words[2 * i + 1] = with_signs(__byte_perm(kValuesOfIQ2, 0, codes >> 16), signs >> 4);
}

struct IQ2_XXS : BlockOf256<66, 1, 8, false, 0> {
  static constexpr int kTwoUnits = kInMatvec | kInGateUp | kInDown;

  static __device__ __forceinline__ int column(int unit, int) { return 32 * unit; }

  static __device__ __forceinline__ void unpack(const uint8_t* block, int unit, Unit& out) {
    uint32_t words[2];
    load_words_at_2(block + 2 + 8 * unit, words);
#pragma unroll
    for (int i = 0; i < 4; i++)
      put_point(out.words[0], i, kIQ2XXSGrid[words[0] >> 8 * i & 255],
                even_signs(words[1] >> 7 * i));
    out.scale[0] = load_half(block) * (0.5f + float(words[1] >> 28)) * 0.25f;
  }
};

// Groups of 16 side by side, two per unit.
template <int kBytes>
struct PairOfGroups : BlockOf256<kBytes, 2, 4, false, 0> {
  static __device__ __forceinline__ int column(int unit, int group) {
    return 32 * unit + 16 * group;
  }

  // One byte holds the scales of both groups.
  static __device__ __forceinline__ void scales(const uint8_t* block, const uint8_t* nibbles,
                                                Unit<2, 4>& out) {
    const uint32_t both = __ldg(nibbles);
    const float d = load_half(block) * 0.25f;
#pragma unroll
    for (int g = 0; g < 2; g++) out.scale[g] = d * (0.5f + float(both >> 4 * g & 15));
  }
};

struct IQ2_XS : PairOfGroups<74> {
  static constexpr int kTwoUnits = kInMatvec | kInGateUp | kInProduct;

  static __device__ __forceinline__ void unpack(const uint8_t* block, int unit, Unit& out) {
    uint32_t words[2];
    load_words_at_2(block + 2 + 8 * unit, words);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint32_t code = words[i / 2] >> 16 * (i % 2);
      put_point(out.words[i / 2], i % 2, kIQ2XSGrid[code & 511], even_signs(code >> 9));
    }
    scales(block, block + 66 + unit, out);
  }
};

struct IQ2_S : PairOfGroups<82> {
  static constexpr int kTwoUnits = kInMatvec | kInGateUp;

  static __device__ __forceinline__ void unpack(const uint8_t* block, int unit, Unit& out) {
    uint32_t low[1], signs[1];
    load_words_at_2(block + 2 + 4 * unit, low);
    load_words_at_2(block + 34 + 4 * unit, signs);
    const uint32_t high = __ldg(block + 66 + unit);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint32_t point = (low[0] >> 8 * i & 255) | (high << (8 - 2 * i) & 0x300);
      put_point(out.words[i / 2], i % 2, kIQ2SGrid[point], signs[0] >> 8 * i);
    }
    scales(block, block + 74 + unit, out);
  }
};

struct IQ3_XXS : BlockOf256<98, 1, 8, false, 0> {
  static constexpr int kTwoUnits = kInGateUp | kInProduct;

  static __device__ __forceinline__ int column(int unit, int) { return 32 * unit; }

  static __device__ __forceinline__ void unpack(const uint8_t* block, int unit, Unit& out) {
    uint32_t points[2], rest[1];
    load_words_at_2(block + 2 + 8 * unit, points);
    load_words_at_2(block + 66 + 4 * unit, rest);
#pragma unroll
    for (int w = 0; w < 8; w++) {
      const uint32_t codes = kIQ3XXSGrid[points[w / 4] >> 8 * (w % 4) & 255];
      out.words[0][w] = with_signs(__byte_perm(kLowValuesOfIQ3_XXS, kHighValuesOfIQ3_XXS, codes),
                                   even_signs(rest[0] >> 7 * (w / 2)) >> 4 * (w % 2));
    }
    out.scale[0] = load_half(block) * (0.5f + float(rest[0] >> 28)) * 0.5f;
  }
};

struct IQ3_S : BlockOf256<110, 1, 8, false, 0> {
  static constexpr int kTwoUnits = kInGateUp | kInProduct;

  static __device__ __forceinline__ int column(int unit, int) { return 32 * unit; }

  static __device__ __forceinline__ void unpack(const uint8_t* block, int unit, Unit& out) {
    uint32_t points[2], signs[1];
    load_words_at_2(block + 2 + 8 * unit, points);
    load_words_at_2(block + 74 + 4 * unit, signs);
    const uint32_t high = __ldg(block + 66 + unit);
#pragma unroll
    for (int w = 0; w < 8; w++) {
      const uint32_t point = (points[w / 4] >> 8 * (w % 4) & 255) | (high << (8 - w) & 0x100);
      out.words[0][w] = with_signs(
          __byte_perm(kLowValuesOfIQ3_S, kHighValuesOfIQ3_S, kIQ3SGrid[point]), signs[0] >> 4 * w);
    }
    const uint32_t scale = __ldg(block + 106 + unit / 2) >> 4 * (unit & 1) & 15;
    out.scale[0] = load_half(block) * float(2 * scale + 1);
  }
};

// Writes point i of a unit of IQ1: eight columns, each scaled up by eight.
template <class Words>
__device__ __forceinline__ void put_shifted(Words& words, int i, uint32_t point, bool minus) {
  const uint32_t codes = codes_as_nibbles(kIQ1SGrid[point]);
  const uint32_t values = minus ? kValuesOfIQ1Minus : kValuesOfIQ1Plus;
  words[2 * i] = int(__byte_perm(values, 0, codes & 0xffff));
  words[2 * i + 1] = int(__byte_perm(values, 0, codes >> 16));
}

struct IQ1_S : BlockOf256<50, 1, 8, false, 0> {
  static constexpr int kTwoUnits = kInMatvec | kInGateUp;

  static __device__ __forceinline__ int column(int unit, int) { return 32 * unit; }

  static __device__ __forceinline__ void unpack(const uint8_t* block, int unit, Unit& out) {
    uint32_t low[1];
    load_words_at_2(block + 2 + 4 * unit, low);
    const uint32_t high = __ldg((const uint16_t*)(block + 34 + 2 * unit));
#pragma unroll
    for (int i = 0; i < 4; i++)
      put_shifted(out.words[0], i, (low[0] >> 8 * i & 255) | (high >> 3 * i & 7) << 8, high >> 15);
    out.scale[0] = load_half(block) * float(2 * (high >> 12 & 7) + 1) * 0.125f;
  }
};

struct IQ1_M : PairOfGroups<56> {
  static constexpr int kTwoUnits = kInMatvec | kInGateUp;

  static __device__ __forceinline__ void unpack(const uint8_t* block, int unit, Unit& out) {
    const uint32_t low = load_word(block + 4 * unit);
    const uint32_t high = __ldg((const uint16_t*)(block + 32 + 2 * unit));
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint32_t nibble = high >> 4 * i & 15;
      put_shifted(out.words[i / 2], i % 2, (low >> 8 * i & 255) | (nibble & 7) << 8, nibble >> 3);
    }
    const uint2 all = __ldg((const uint2*)(block + 48));
    const uint32_t d = (all.x >> 12 & 0x000f) | (all.x >> 24 & 0x00f0) | (all.y >> 4 & 0x0f00) |
                       (all.y >> 16 & 0xf000);
    const uint32_t scales = (unit < 4 ? all.x : all.y) >> (16 * (unit >> 1 & 1) + 6 * (unit & 1));
#pragma unroll
    for (int g = 0; g < 2; g++)
      out.scale[g] = half_bits(d) * float(2 * (scales >> 3 * g & 7) + 1) * 0.125f;
  }
};

}  // namespace sharpi
