// The quant types with blocks of 32 values: a block is one unit and has one scale.
#pragma once
#include "unit.cuh"

namespace sharpi {

template <int kBytes, bool kMin, int kOffsetOfQ>
struct BlockOf32 {
  static constexpr int kBlockValues = 32, kBlockBytes = kBytes;
  static constexpr int kGroups = 1, kWords = 8;
  static constexpr bool kHasMin = kMin;
  static constexpr int kOffset = kOffsetOfQ;
  static constexpr int kTwoUnits = 0;
  using Unit = sharpi::Unit<1, 8>;

  static __device__ __forceinline__ int column(int, int) { return 0; }

  static __device__ __forceinline__ void nibbles(const uint32_t* qs, Unit& out) {
#pragma unroll
    for (int w = 0; w < 4; w++) split_nibbles(qs[w], out.words[0][w], out.words[0][w + 4]);
  }

  static __device__ __forceinline__ void fifth_bits(uint32_t qh, Unit& out) {
#pragma unroll
    for (int w = 0; w < 8; w++) out.words[0][w] |= spread_to_bit_4(qh >> 4 * w);
  }

  template <class Table>
  static __device__ __forceinline__ void look_up(const uint32_t* qs, Unit& out) {
#pragma unroll
    for (int w = 0; w < 4; w++) look_up_nibbles<Table>(qs[w], out.words[0][w], out.words[0][w + 4]);
  }
};

struct Q4_0 : BlockOf32<18, false, 8> {
  static constexpr int kTwoUnits = kInGateUp;

  static __device__ __forceinline__ void unpack(const uint8_t* block, int, Unit& out) {
    uint32_t qs[4];
    load_words_at_2(block + 2, qs);
    nibbles(qs, out);
    out.scale[0] = load_half(block);
  }
};

struct Q4_1 : BlockOf32<20, true, 0> {
  static constexpr int kTwoUnits = kInGateUp | kInProduct;

  static __device__ __forceinline__ void unpack(const uint8_t* block, int, Unit& out) {
    const uint32_t scales = load_word(block);
    uint32_t qs[4];
#pragma unroll
    for (int w = 0; w < 4; w++) qs[w] = load_word(block + 4 + 4 * w);
    nibbles(qs, out);
    out.scale[0] = half_bits(scales & 0xffff);
    out.min[0] = -half_bits(scales >> 16);
  }
};

struct Q5_0 : BlockOf32<22, false, 16> {
  static constexpr int kTwoUnits = kInGateUp;

  static __device__ __forceinline__ void unpack(const uint8_t* block, int, Unit& out) {
    uint32_t bits[5];
    load_words_at_2(block + 2, bits);
    nibbles(bits + 1, out);
    fifth_bits(bits[0], out);
    out.scale[0] = load_half(block);
  }
};

struct Q5_1 : BlockOf32<24, true, 0> {
  static constexpr int kTwoUnits = kInMatvec | kInGateUp;

  static __device__ __forceinline__ void unpack(const uint8_t* block, int, Unit& out) {
    const uint2 head = __ldg((const uint2*)block);
    const uint2 front = __ldg((const uint2*)(block + 8)), back = __ldg((const uint2*)(block + 16));
    const uint32_t qs[4] = {front.x, front.y, back.x, back.y};
    nibbles(qs, out);
    fifth_bits(head.y, out);
    out.scale[0] = half_bits(head.x & 0xffff);
    out.min[0] = -half_bits(head.x >> 16);
  }
};

struct Q8_0 : BlockOf32<34, false, 0> {
  static constexpr int kTwoUnits = kInGateUp;

  static __device__ __forceinline__ void unpack(const uint8_t* block, int, Unit& out) {
    uint32_t qs[8];
    load_words_at_2(block + 2, qs);
#pragma unroll
    for (int w = 0; w < 8; w++) out.words[0][w] = int(qs[w]);
    out.scale[0] = load_half(block);
  }
};

using IQ4Table = Table<SHARPI_IQ4_VALUES>;

struct IQ4_NL : BlockOf32<18, false, 0> {
  static constexpr int kTwoUnits = kInMatvec | kInGateUp;

  static __device__ __forceinline__ void unpack(const uint8_t* block, int, Unit& out) {
    uint32_t qs[4];
    load_words_at_2(block + 2, qs);
    look_up<IQ4Table>(qs, out);
    out.scale[0] = load_half(block);
  }
};

struct MXFP4 : BlockOf32<17, false, 0> {
  static constexpr int kTwoUnits = kInMatvec | kInGateUp;

  static __device__ __forceinline__ void unpack(const uint8_t* block, int, Unit& out) {
    uint32_t qs[4];
    out.scale[0] = half_of_power(load_byte_and_words(block, qs));
    look_up<Table<SHARPI_E2M1_TWICE>>(qs, out);
  }

  // Returns 2^(e - 128), half the scale, because the table holds doubled values.
  static __device__ __forceinline__ float half_of_power(uint32_t e) {
    return __int_as_float(e < 2 ? 0x00200000 << e : int(e - 1) << 23);
  }
};

}  // namespace sharpi
