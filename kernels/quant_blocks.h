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

// The same with a fifth bit in qh
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

// No padding anywhere: the sizes are the format's.
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

// The 16 values of IQ4_NL and IQ4_XS.
#define SHARPI_IQ4_VALUES -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113
// Twice the 16 values of E2M1, so that they are whole.
#define SHARPI_E2M1_TWICE 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12

}  // namespace sharpi
