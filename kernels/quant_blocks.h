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

#define SHARPI_BLOCK(name, bytes, ...) \
  struct name {                        \
    __VA_ARGS__                        \
  };                                   \
  static_assert(sizeof(name) == bytes, #name " must be " #bytes " bytes")

// 32 values: d * (nibble - 8); low nibbles are values 0..15, high ones 16..31. So for all blocks
// of 32.
SHARPI_BLOCK(BlockQ4_0, 18, uint16_t d; uint8_t qs[16];);
// d * nibble + m
SHARPI_BLOCK(BlockQ4_1, 20, uint16_t d; uint16_t m; uint8_t qs[16];);
// d * (nibble + 16 * bit - 16); bit i of qh belongs to value i
SHARPI_BLOCK(BlockQ5_0, 22, uint16_t d; uint8_t qh[4]; uint8_t qs[16];);
// d * (nibble + 16 * bit) + m
SHARPI_BLOCK(BlockQ5_1, 24, uint16_t d; uint16_t m; uint8_t qh[4]; uint8_t qs[16];);
// d * q
SHARPI_BLOCK(BlockQ8_0, 34, uint16_t d; int8_t qs[32];);
// d * table[nibble]
SHARPI_BLOCK(BlockIQ4_NL, 18, uint16_t d; uint8_t qs[16];);
// 2^(e - 127) * E2M1[nibble]
SHARPI_BLOCK(BlockMXFP4, 17, uint8_t e; uint8_t qs[16];);

// 256 values in 16 groups: d * (scale & 15) * q - dmin * (scale >> 4), q of 2 bits
SHARPI_BLOCK(BlockQ2_K, 84, uint8_t scales[16]; uint8_t qs[64]; uint16_t d; uint16_t dmin;);
// 256 in 16 groups: d * (scale - 32) * (q - 4 * !bit), q of 2 bits, scales of 6
SHARPI_BLOCK(BlockQ3_K, 110, uint8_t hmask[32]; uint8_t qs[64]; uint8_t scales[12]; uint16_t d;);
// 256 in 8 groups: d * scale * q - dmin * min, scales and mins of 6 bits
SHARPI_BLOCK(BlockQ4_K, 144, uint16_t d; uint16_t dmin; uint8_t scales[12]; uint8_t qs[128];);
// The same with a fifth bit in qh
SHARPI_BLOCK(BlockQ5_K, 176, uint16_t d; uint16_t dmin; uint8_t scales[12]; uint8_t qh[32];
             uint8_t qs[128];);
// 256 in 16 groups: d * scale * (q - 32), q of 6 bits
SHARPI_BLOCK(BlockQ6_K, 210, uint8_t ql[128]; uint8_t qh[64]; int8_t scales[16]; uint16_t d;);
// 256 in 8 groups: d * (scale - 32) * table[nibble], scales of 6 bits
SHARPI_BLOCK(BlockIQ4_XS, 136, uint16_t d; uint16_t scales_h; uint8_t scales_l[4];
             uint8_t qs[128];);

#undef SHARPI_BLOCK

// The 16 values of IQ4_NL and IQ4_XS.
#define SHARPI_IQ4_VALUES -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113
// Twice the 16 values of E2M1, so that they are whole.
#define SHARPI_E2M1_TWICE 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12

}  // namespace sharpi
