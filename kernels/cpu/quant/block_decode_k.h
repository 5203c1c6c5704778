// Decodes blocks of 256 with packed scales: Q2_K to Q6_K, and IQ4_XS.
#pragma once
#include "block_decode_of_32.h"

namespace {

// Returns two bits of a block of 256, in 8 parts of 32 values.
inline int two_bits(const uint8_t* qs, int part, int l) {
  return qs[part / 4 * 32 + l] >> (part % 4 * 2) & 3;
}
inline void decode(const BlockQ2_K& b, RowBlock& out) {
  fill<32>(out.q, 8, [&](int part, int l) { return two_bits(b.qs, part, l); });
  for (int g = 0; g < 16; g++) {
    out.scale[g] = half_to_float(b.d) * float(b.scales[g] & 15);
    out.min[g] = half_to_float(b.dmin) * float(b.scales[g] >> 4);
  }
}

inline int q3_scale(const uint8_t* s, int g) {
  const int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4;
  return (low | (s[8 + g % 4] >> (g / 4 * 2) & 3) << 4) - 32;
}
inline void decode(const BlockQ3_K& b, RowBlock& out) {
  fill<32>(out.q, 8, [&](int part, int l) {
    return two_bits(b.qs, part, l) + ((b.hmask[l] >> part & 1) << 2) - 4;
  });
  for (int g = 0; g < 16; g++)
    out.scale[g] = half_to_float(b.d) * float(q3_scale(b.scales, g)), out.min[g] = 0;
}

// Return a six-bit scale or min of Q4_K and Q5_K.
inline int k_scale(const uint8_t* s, int g) {
  return g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 6 << 4);
}
inline int k_min(const uint8_t* s, int g) {
  return g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | (s[g] >> 6 << 4);
}
template <class Block>
inline void decode_k_scales(const Block& b, RowBlock& out) {
  for (int g = 0; g < 16; g++) {
    out.scale[g] = half_to_float(b.d) * float(k_scale(b.scales, g / 2));
    out.min[g] = half_to_float(b.dmin) * float(k_min(b.scales, g / 2));
  }
}
inline int k_nibble(const uint8_t* qs, int part, int l) {
  return qs[part / 2 * 32 + l] >> (part % 2 * 4) & 15;
}
inline void decode(const BlockQ4_K& b, RowBlock& out) {
  fill<32>(out.q, 8, [&](int part, int l) { return k_nibble(b.qs, part, l); });
  decode_k_scales(b, out);
}
inline void decode(const BlockQ5_K& b, RowBlock& out) {
  fill<32>(out.q, 8,
           [&](int part, int l) { return k_nibble(b.qs, part, l) | (b.qh[l] >> part & 1) << 4; });
  decode_k_scales(b, out);
}

inline void decode(const BlockQ6_K& b, RowBlock& out) {
  fill<32>(out.q, 8, [&](int part, int l) {
    const int half = part / 4, quarter = part % 4;
    const int low = b.ql[64 * half + 32 * (quarter % 2) + l] >> (quarter / 2 * 4) & 15;
    return (low | (b.qh[32 * half + l] >> (2 * quarter) & 3) << 4) - 32;
  });
  for (int g = 0; g < 16; g++)
    out.scale[g] = half_to_float(b.d) * float(b.scales[g]), out.min[g] = 0;
}

inline void decode(const BlockIQ4_XS& b, RowBlock& out) {
  fill<16>(out.q, 16,
           [&](int half, int l) { return kIq4Values[nibble(b.qs + half / 2 * 16, half % 2, l)]; });
  for (int g = 0; g < 16; g++) {
    const int low = b.scales_l[g / 4] >> (g / 2 % 2 * 4) & 15, high = b.scales_h >> (g / 2 * 2) & 3;
    out.scale[g] = half_to_float(b.d) * float((low | high << 4) - 32);
    out.min[g] = 0;
  }
}

}  // namespace
