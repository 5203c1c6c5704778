// The quant types with blocks of 256 values. A unit is 32 of them, or 64 for Q4_K and Q5_K, whose
// scales are expensive to decode.
#pragma once
#include "blocks_of_32.cuh"

namespace sharpi {

template <int kBytes, int kNumGroups, int kNumWords, bool kMin, int kOffsetOfQ>
struct BlockOf256 {
  static constexpr int kBlockValues = 256, kBlockBytes = kBytes;
  static constexpr int kGroups = kNumGroups, kWords = kNumWords;
  static constexpr bool kHasMin = kMin;
  static constexpr int kOffset = kOffsetOfQ;
  static constexpr int kTwoUnits = 0;
  using Unit = sharpi::Unit<kNumGroups, kNumWords>;
};

// The position of a unit of two groups of 16: unit = 4 * half + 2 * pair + side.
struct TwoGroupsAt {
  int half, pair, side;
};
__device__ __forceinline__ TwoGroupsAt two_groups_at(int unit) {
  return {unit >> 2, unit >> 1 & 1, unit & 1};
}

// Layout of Q2_K and Q3_K: 16 bytes hold four groups, 32 columns apart; a unit is two of them.
template <int kBytes, bool kMin, int kOffsetOfQ>
struct TwoOfFourGroups : BlockOf256<kBytes, 2, 4, kMin, kOffsetOfQ> {
  static __device__ __forceinline__ int column(int unit, int group) {
    const TwoGroupsAt at = two_groups_at(unit);
    return 128 * at.half + 64 * at.pair + 32 * group + 16 * at.side;
  }
};

struct Q2_K : TwoOfFourGroups<84, true, 0> {
  static constexpr int kTwoUnits = kInGateUp | kInProduct;

  static __device__ __forceinline__ void unpack(const uint8_t* block, int unit, Unit& out) {
    const TwoGroupsAt at = two_groups_at(unit);
    uint32_t qs[4];
#pragma unroll
    for (int w = 0; w < 4; w++)
      qs[w] = load_word(block + 16 + 32 * at.half + 16 * at.side + 4 * w) >> 4 * at.pair;
    const uint32_t scales = load_word(block + 8 * at.half + 4 * at.pair) >> 8 * at.side;
    const uint32_t factors = load_word(block + 80);
    const float d = half_bits(factors & 0xffff), dmin = half_bits(factors >> 16);
#pragma unroll
    for (int g = 0; g < 2; g++) {
      out.scale[g] = d * float(scales >> 16 * g & 15);
      out.min[g] = dmin * float(scales >> (16 * g + 4) & 15);
#pragma unroll
      for (int w = 0; w < 4; w++) out.words[g][w] = int(qs[w] >> 2 * g & 0x03030303);
    }
  }
};

struct Q3_K : TwoOfFourGroups<110, false, 4> {
  static __device__ __forceinline__ void unpack(const uint8_t* block, int unit, Unit& out) {
    const TwoGroupsAt at = two_groups_at(unit);
    uint32_t qs[4], mask[4], low[1], high[1];
    load_words_at_2(block + 32 + 32 * at.half + 16 * at.side, qs);
    load_words_at_2(block + 16 * at.side, mask);
    load_words_at_2(block + 96 + 4 * at.pair, low);
    load_words_at_2(block + 104, high);
    const float d = load_half(block + 108);
    const int part = 4 * at.half + 2 * at.pair;  // of the first group: its bit in mask
#pragma unroll
    for (int g = 0; g < 2; g++) {
      const uint32_t four = low[0] >> (8 * at.side + 16 * g + 4 * at.half) & 15;
      const uint32_t two = high[0] >> (8 * at.side + 16 * g + part) & 3;
      out.scale[g] = d * float(int(four | two << 4) - 32);
#pragma unroll
      for (int w = 0; w < 4; w++)
        out.words[g][w] = int((qs[w] >> (4 * at.pair + 2 * g) & 0x03030303) |
                              (mask[w] >> (part + g) & 0x01010101) << 2);
    }
  }
};

// The low nibbles of 16 bytes are one group, the high nibbles another, 64 columns on.
struct Q6_K : BlockOf256<210, 2, 4, false, 32> {
  static constexpr int kTwoUnits = kInProduct;

  static __device__ __forceinline__ int column(int unit, int group) {
    const TwoGroupsAt at = two_groups_at(unit);
    return 128 * at.half + 32 * at.pair + 64 * group + 16 * at.side;
  }

  static __device__ __forceinline__ void unpack(const uint8_t* block, int unit, Unit& out) {
    const TwoGroupsAt at = two_groups_at(unit);
    uint32_t low[4], high[4];
    load_words_at_2(block + 16 * unit, low);
    load_words_at_2(block + 128 + 32 * at.half + 16 * at.side, high);
    const int8_t* scales = (const int8_t*)block + 192 + 8 * at.half + 2 * at.pair + at.side;
    const float d = load_half(block + 208);
#pragma unroll
    for (int g = 0; g < 2; g++) {
      out.scale[g] = d * float(__ldg(scales + 4 * g));
#pragma unroll
      for (int w = 0; w < 4; w++) {
        const uint32_t top = high[w] >> 2 * at.pair;
        out.words[g][w] = int((low[w] >> 4 * g & 0x0f0f0f0f) |
                              (g == 0 ? top << 4 & 0x30303030 : top & 0x30303030));
      }
    }
  }
};

// Layout of Q4_K and Q5_K: unit p is parts 2p and 2p + 1, of 32 columns each.
template <int kBytes>
struct TwoParts : BlockOf256<kBytes, 2, 8, true, 0> {
  static __device__ __forceinline__ int column(int unit, int group) {
    return 64 * unit + 32 * group;
  }

  static __device__ __forceinline__ void scales(uint4 head, int unit, Unit<2, 8>& out) {
    const int at = 16 * (unit & 1);
    const uint32_t a = head.y >> at, b = head.z >> at, c = head.w >> at;
    const uint32_t scale = unit < 2 ? a & 0x3f3f : (c & 0x0f0f) | (a >> 2 & 0x3030);
    const uint32_t min = unit < 2 ? b & 0x3f3f : (c >> 4 & 0x0f0f) | (b >> 2 & 0x3030);
    const float d = half_bits(head.x & 0xffff), dmin = half_bits(head.x >> 16);
#pragma unroll
    for (int g = 0; g < 2; g++) {
      out.scale[g] = d * float(scale >> 8 * g & 255);
      out.min[g] = dmin * float(min >> 8 * g & 255);
    }
  }

  static __device__ __forceinline__ void nibbles(const uint8_t* qs, Unit<2, 8>& out) {
    const uint4 front = __ldg((const uint4*)qs), back = __ldg((const uint4*)qs + 1);
    const uint32_t bytes[8] = {front.x, front.y, front.z, front.w, back.x, back.y, back.z, back.w};
#pragma unroll
    for (int w = 0; w < 8; w++) split_nibbles(bytes[w], out.words[0][w], out.words[1][w]);
  }
};

struct Q4_K : TwoParts<144> {
  static constexpr int kTwoUnits = kInProduct;

  static __device__ __forceinline__ void unpack(const uint8_t* block, int unit, Unit& out) {
    scales(__ldg((const uint4*)block), unit, out);
    nibbles(block + 16 + 32 * unit, out);
  }
};

struct Q5_K : TwoParts<176> {
  static constexpr int kTwoUnits = kInProduct;

  static __device__ __forceinline__ void unpack(const uint8_t* block, int unit, Unit& out) {
    scales(__ldg((const uint4*)block), unit, out);
    nibbles(block + 48 + 32 * unit, out);
    const uint4 front = __ldg((const uint4*)(block + 16)), back = __ldg((const uint4*)(block + 32));
    const uint32_t bytes[8] = {front.x, front.y, front.z, front.w, back.x, back.y, back.z, back.w};
#pragma unroll
    for (int w = 0; w < 8; w++) {
      const uint32_t bits = bytes[w] >> 2 * unit;
      out.words[0][w] |= int(bits << 4 & 0x10101010);
      out.words[1][w] |= int(bits << 3 & 0x10101010);
    }
  }
};

struct IQ4_XS : BlockOf256<136, 1, 8, false, 0> {
  static constexpr int kTwoUnits = kInGateUp | kInProduct;

  static __device__ __forceinline__ int column(int unit, int) { return 32 * unit; }

  static __device__ __forceinline__ void unpack(const uint8_t* block, int unit, Unit& out) {
    const uint2 head = __ldg((const uint2*)block);
    const uint2 front = __ldg((const uint2*)(block + 8 + 16 * unit));
    const uint2 back = __ldg((const uint2*)(block + 16 + 16 * unit));
    const uint32_t bytes[4] = {front.x, front.y, back.x, back.y};
    const uint32_t scale = (head.y >> 4 * unit & 15) | (head.x >> (16 + 2 * unit) & 3) << 4;
#pragma unroll
    for (int w = 0; w < 4; w++)
      look_up_nibbles<IQ4Table>(bytes[w], out.words[0][w], out.words[0][w + 4]);
    out.scale[0] = half_bits(head.x & 0xffff) * float(int(scale) - 32);
  }
};

}  // namespace sharpi
