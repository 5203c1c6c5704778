// Decodes types with one to three values per weight, and NVFP4: Q1_0, Q2_0, TQ1_0, TQ2_0.
#pragma once
#include "block_decode_iq.h"
#include "block_decode_k.h"

namespace {

inline void decode(const BlockQ1_0& b, int group, RowBlock& out) {
  for (int i = 0; i < 16; i++) put_signed(out.q + 16 * group + 8 * i, kEveryByte, b.qs[i] ^ 255);
  set_scale(out, group, 8, half_to_float(b.d));
}

inline void decode(const BlockQ2_0& b, int group, RowBlock& out) {
  int8_t* q = out.q + 16 * group;
  for (int i = 0; i < 16; i++) {
    const uint32_t x = b.qs[i], four = (x | x << 6 | x << 12 | x << 18) & 0x03030303;
    memcpy(q + 4 * i, &four, 4);
  }
  for (int i = 0; i < 64; i++) q[i]--;
  set_scale(out, group, 4, half_to_float(b.d));
}

// Returns digit i of a byte, the highest first, less 1; power is 3^i.
inline int ternary(uint8_t byte, int power) { return (uint8_t(byte * power) * 3 >> 8) - 1; }
inline void decode(const BlockTQ1_0& b, RowBlock& out) {
  constexpr int kPowers[5] = {1, 3, 9, 27, 81};
  fill<32>(out.q, 5, [&](int i, int l) { return ternary(b.qs[l], kPowers[i]); });
  fill<16>(out.q + 160, 5, [&](int i, int l) { return ternary(b.qs[32 + l], kPowers[i]); });
  fill<4>(out.q + 240, 4, [&](int i, int l) { return ternary(b.qh[l], kPowers[i]); });
  set_scale(out, 0, 16, half_to_float(b.d));
}

inline void decode(const BlockTQ2_0& b, RowBlock& out) {
  fill<32>(out.q, 8, [&](int part, int l) { return two_bits(b.qs, part, l) - 1; });
  set_scale(out, 0, 16, half_to_float(b.d));
}

// Returns half of the number with 4 exponent bits and 3 mantissa bits, because the table holds
// doubled values; the code for NaN gives 0, as in ggml.
inline float e4m3_half(uint8_t code) {
  const uint32_t bits = uint32_t(code == 0x7f ? 0 : code & 0x7f) << 20;
  float x;
  memcpy(&x, &bits, 4);
  return x * 0x1p119f;
}
inline void decode(const BlockNVFP4& b, int group, RowBlock& out) {
  for (int g = 0; g < 4; g++) {
    fill<8>(out.q + 16 * (group + g), 2,
            [&](int half, int l) { return kE2m1Twice[nibble(b.qs + 8 * g, half, l)]; });
    set_scale(out, group + g, 1, e4m3_half(b.d[g]));
  }
}

}  // namespace
