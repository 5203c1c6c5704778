// The block layouts of the GGUF quant types, as they lie in a file. Shared by C++ and CUDA.
//
// Source: the format's own definitions (ggml-common.h); field names are the same. All are packed,
// little-endian; `d` and `m` fields are IEEE half floats. Blocks in a file may have any alignment:
// copy before use, or read by bytes.
#pragma once
#ifndef __CUDACC_RTC__
#include <stdint.h>
#endif

namespace sharpi {

// 32 values: d * (nibble - 8); low nibbles are values 0..15, high ones 16..31, as in every block
// of 32.
struct BlockQ4_0 {
  uint16_t d;
  uint8_t qs[16];
};

// d * nibble + m
struct BlockQ4_1 {
  uint16_t d;
  uint16_t m;
  uint8_t qs[16];
};

// d * (nibble + 16 * bit - 16); bit i of qh belongs to value i
struct BlockQ5_0 {
  uint16_t d;
  uint8_t qh[4];
  uint8_t qs[16];
};

// d * (nibble + 16 * bit) + m
struct BlockQ5_1 {
  uint16_t d;
  uint16_t m;
  uint8_t qh[4];
  uint8_t qs[16];
};

// d * q
struct BlockQ8_0 {
  uint16_t d;
  int8_t qs[32];
};

// d * table[nibble]
struct BlockIQ4_NL {
  uint16_t d;
  uint8_t qs[16];
};

// 2^(e - 127) * E2M1[nibble]
struct BlockMXFP4 {
  uint8_t e;
  uint8_t qs[16];
};

// 256 values in 16 groups: d * (scale & 15) * q - dmin * (scale >> 4), q of 2 bits
struct BlockQ2_K {
  uint8_t scales[16];
  uint8_t qs[64];
  uint16_t d;
  uint16_t dmin;
};

// 256 in 16 groups: d * (scale - 32) * (q - 4 * !bit), q of 2 bits, scales of 6
struct BlockQ3_K {
  uint8_t hmask[32];
  uint8_t qs[64];
  uint8_t scales[12];
  uint16_t d;
};

// 256 in 8 groups: d * scale * q - dmin * min, scales and mins of 6 bits
struct BlockQ4_K {
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t qs[128];
};

// Like Q4_K, with a fifth bit in qh
struct BlockQ5_K {
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};

// 256 in 16 groups: d * scale * (q - 32), q of 6 bits
struct BlockQ6_K {
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  uint16_t d;
};

// 256 in 8 groups: d * (scale - 32) * table[nibble], scales of 6 bits
struct BlockIQ4_XS {
  uint16_t d;
  uint16_t scales_h;
  uint8_t scales_l[4];
  uint8_t qs[128];
};

// The IQ types below have 256 values: points of a grid (iq_grids.h) of 8 or 4 values, times signs,
// times the scales of groups of 32 or 16. Where 7 sign bits stand for 8 values, the eighth sign
// makes the number of negative ones even.

// 8 groups: d * (scale + 1/2) / 4. Each group has 4 bytes of points, then 4 bytes with four times 7
// sign bits and the scale.
struct BlockIQ2_XXS {
  uint16_t d;
  uint16_t qs[32];
};

// 16 groups: d * (scale + 1/2) / 4. 9 bits are a point, 7 the signs; the low nibble of a byte of
// scales comes first.
struct BlockIQ2_XS {
  uint16_t d;
  uint16_t qs[32];
  uint8_t scales[8];
};

// 16 groups: d * (scale + 1/2) / 4. 32 bytes of points, 32 of signs; qh adds two bits to each
// point.
struct BlockIQ2_S {
  uint16_t d;
  uint8_t qs[64];
  uint8_t qh[8];
  uint8_t scales[8];
};

// 8 groups: d * (scale + 1/2) / 2. 64 bytes of points, then each group's signs and scale as in
// IQ2_XXS.
struct BlockIQ3_XXS {
  uint16_t d;
  uint8_t qs[96];
};

// 8 groups: d * (2 * scale + 1); qh has a ninth bit of each point.
struct BlockIQ3_S {
  uint16_t d;
  uint8_t qs[64];
  uint8_t qh[8];
  uint8_t signs[32];
  uint8_t scales[4];
};

// 8 groups: d * (2 * scale + 1) * (point + or - 1/8). The bits of qh are three more bits for each
// of 4 points, the scale, and 1 for minus.
struct BlockIQ1_S {
  uint16_t d;
  uint8_t qs[32];
  uint16_t qh[8];
};

// 16 groups as in IQ1_S, but a nibble of qh holds three bits of a point and its own minus. Each 16
// bits of scales hold 4 scales, then four bits of d, low ones first.
struct BlockIQ1_M {
  uint8_t qs[32];
  uint8_t qh[16];
  uint8_t scales[8];
};

// 256 values d * (q - 1): a byte holds five digits of base 3; digit i is byte * 3^i % 256 * 3 /
// 256. Digits i and i + 1 of a byte of qs are 32 values apart (16 in its last 16 bytes); a byte of
// qh has four digits, 4 values apart.
struct BlockTQ1_0 {
  uint8_t qs[48];
  uint8_t qh[4];
  uint16_t d;
};

// 256 values d * (q - 1), q of 2 bits, as in Q2_K
struct BlockTQ2_0 {
  uint8_t qs[64];
  uint16_t d;
};

// 64 values in 4 groups: d * E2M1[nibble], d with 4 exponent bits and 3 mantissa bits; of each 8
// bytes, the low nibbles come first. A scale for the whole matrix is in a tensor of its own.
struct BlockNVFP4 {
  uint8_t d[4];
  uint8_t qs[32];
};

// 128 values d * (2 * bit - 1), in order
struct BlockQ1_0 {
  uint16_t d;
  uint8_t qs[16];
};

// 64 values d * (q - 1), q of 2 bits, in order
struct BlockQ2_0 {
  uint16_t d;
  uint8_t qs[16];
};

// There is no padding anywhere: the sizes are the format's.
static_assert(sizeof(BlockQ4_0) == 18);
static_assert(sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ5_0) == 22);
static_assert(sizeof(BlockQ5_1) == 24);
static_assert(sizeof(BlockQ8_0) == 34);
static_assert(sizeof(BlockIQ4_NL) == 18);
static_assert(sizeof(BlockMXFP4) == 17);
static_assert(sizeof(BlockQ2_K) == 84);
static_assert(sizeof(BlockQ3_K) == 110);
static_assert(sizeof(BlockQ4_K) == 144);
static_assert(sizeof(BlockQ5_K) == 176);
static_assert(sizeof(BlockQ6_K) == 210);
static_assert(sizeof(BlockIQ4_XS) == 136);
static_assert(sizeof(BlockIQ2_XXS) == 66);
static_assert(sizeof(BlockIQ2_XS) == 74);
static_assert(sizeof(BlockIQ2_S) == 82);
static_assert(sizeof(BlockIQ3_XXS) == 98);
static_assert(sizeof(BlockIQ3_S) == 110);
static_assert(sizeof(BlockIQ1_S) == 50);
static_assert(sizeof(BlockIQ1_M) == 56);
static_assert(sizeof(BlockTQ1_0) == 54);
static_assert(sizeof(BlockTQ2_0) == 66);
static_assert(sizeof(BlockNVFP4) == 36);
static_assert(sizeof(BlockQ1_0) == 18);
static_assert(sizeof(BlockQ2_0) == 18);

// The 16 values of IQ4_NL and IQ4_XS.
#define SHARPI_IQ4_VALUES -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113
// Twice the 16 values of E2M1, so that they are whole.
#define SHARPI_E2M1_TWICE 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12

}  // namespace sharpi
