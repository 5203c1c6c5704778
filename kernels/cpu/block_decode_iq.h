// Blocks of 256 whose values are points of a grid with signs: IQ1_S to IQ3_S.
#pragma once
#include "iq_points.h"
#include "row_block.h"

namespace {

constexpr uint64_t kEveryByte = 0x0101010101010101;

inline uint16_t short_at(const uint8_t* p) {
  uint16_t x;
  memcpy(&x, p, sizeof x);
  return x;
}
inline uint32_t word_at(const uint8_t* p) {
  uint32_t x;
  memcpy(&x, p, sizeof x);
  return x;
}
inline int four_bits(const uint8_t* packed, int i) { return packed[i / 2] >> (i % 2 * 4) & 15; }

// Eight values: bytes of `point`, which are not zero, negative where `signs` has a bit.
inline void put_signed(int8_t* q, uint64_t point, int signs) {
  const uint64_t bits = uint64_t(signs) * kEveryByte & 0x8040201008040201;
  const uint64_t minus = (bits + 0x7f * kEveryByte) >> 7 & kEveryByte;
  point = (point ^ minus * 0xff) + minus;
  memcpy(q, &point, sizeof point);
}
inline uint64_t two_points(uint32_t low, uint32_t high) { return low | uint64_t(high) << 32; }

inline void decode(const BlockIQ2_XXS& b, RowBlock& out) {
  for (int g = 0; g < 8; g++) {
    const uint16_t* qs = b.qs + 4 * g;
    const uint32_t rest = qs[2] | uint32_t(qs[3]) << 16;
    for (int i = 0; i < 4; i++)
      put_signed(out.q + 32 * g + 8 * i, kIQ2XXSPoints[qs[i / 2] >> (i % 2 * 8) & 255],
                 kEvenSigns[rest >> 7 * i & 127]);
    set_scale(out, 2 * g, 2, half_to_float(b.d) * (0.5f + float(rest >> 28)) * 0.25f);
  }
}

inline void decode(const BlockIQ2_XS& b, RowBlock& out) {
  for (int i = 0; i < 32; i++)
    put_signed(out.q + 8 * i, kIQ2XSPoints[b.qs[i] & 511], kEvenSigns[b.qs[i] >> 9]);
  for (int g = 0; g < 16; g++)
    set_scale(out, g, 1, half_to_float(b.d) * (0.5f + float(four_bits(b.scales, g))) * 0.25f);
}

inline void decode(const BlockIQ2_S& b, RowBlock& out) {
  for (int i = 0; i < 32; i++) {
    const int high = b.qh[i / 4] >> (i % 4 * 2) & 3;
    put_signed(out.q + 8 * i, kIQ2SPoints[b.qs[i] | high << 8], b.qs[32 + i]);
  }
  for (int g = 0; g < 16; g++)
    set_scale(out, g, 1, half_to_float(b.d) * (0.5f + float(four_bits(b.scales, g))) * 0.25f);
}

inline void decode(const BlockIQ3_XXS& b, RowBlock& out) {
  for (int g = 0; g < 8; g++) {
    const uint8_t* qs = b.qs + 8 * g;
    const uint32_t rest = word_at(b.qs + 64 + 4 * g);
    for (int i = 0; i < 4; i++)
      put_signed(out.q + 32 * g + 8 * i,
                 two_points(kIQ3XXSPoints[qs[2 * i]], kIQ3XXSPoints[qs[2 * i + 1]]),
                 kEvenSigns[rest >> 7 * i & 127]);
    set_scale(out, 2 * g, 2, half_to_float(b.d) * (0.5f + float(rest >> 28)) * 0.5f);
  }
}

inline void decode(const BlockIQ3_S& b, RowBlock& out) {
  const auto point = [&](int i) {
    return kIQ3SPoints[b.qs[i] | (b.qh[i / 8] >> (i % 8) & 1) << 8];
  };
  for (int i = 0; i < 32; i++)
    put_signed(out.q + 8 * i, two_points(point(2 * i), point(2 * i + 1)), b.signs[i]);
  for (int g = 0; g < 8; g++)
    set_scale(out, 2 * g, 2, half_to_float(b.d) * float(2 * four_bits(b.scales, g) + 1));
}

// Eight values, eight times as large as they are: 8 * point + or - 1.
inline void put_shifted(int8_t* q, int point, bool minus) {
  const uint64_t values = kIQ1Points[point];
  for (int l = 0; l < 8; l++) q[l] = int8_t(int(values >> 8 * l & 255) - (minus ? 9 : 7));
}

inline void decode(const BlockIQ1_S& b, RowBlock& out) {
  for (int i = 0; i < 32; i++) {
    const int qh = b.qh[i / 4];
    put_shifted(out.q + 8 * i, b.qs[i] | (qh >> (i % 4 * 3) & 7) << 8, qh >> 15);
  }
  for (int g = 0; g < 8; g++)
    set_scale(out, 2 * g, 2, half_to_float(b.d) * float(2 * (b.qh[g] >> 12 & 7) + 1) * 0.125f);
}

inline void decode(const BlockIQ1_M& b, RowBlock& out) {
  for (int i = 0; i < 32; i++) {
    const int high = four_bits(b.qh, i);
    put_shifted(out.q + 8 * i, b.qs[i] | (high & 7) << 8, high >> 3);
  }
  uint16_t d = 0;
  for (int i = 0; i < 4; i++) d |= short_at(b.scales + 2 * i) >> 12 << 4 * i;
  for (int g = 0; g < 16; g++) {
    const int scale = short_at(b.scales + g / 4 * 2) >> (g % 4 * 3) & 7;
    set_scale(out, g, 1, half_to_float(d) * float(2 * scale + 1) * 0.125f);
  }
}

}  // namespace
