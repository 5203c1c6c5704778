// Decodes blocks of 256 whose values are points of a grid with signs: IQ1_S to IQ3_S.
#pragma once
#include "iq_points.h"
#include "matmul/row_block.h"

namespace {

constexpr uint64_t kEveryByte = 0x0101010101010101;

inline uint32_t word_at(const uint8_t* p) {
  uint32_t x;
  memcpy(&x, p, sizeof x);
  return x;
}
inline int four_bits(const uint8_t* packed, int i) { return packed[i / 2] >> (i % 2 * 4) & 15; }

// Writes eight values: the bytes of `point`, which are not zero, negated where `signs` has a bit.
inline void put_signed(int8_t* q, uint64_t point, int signs) {
  const uint64_t bits = uint64_t(signs) * kEveryByte & 0x8040201008040201;
  const uint64_t minus = (bits + 0x7f * kEveryByte) >> 7 & kEveryByte;
  point = (point ^ minus * 0xff) + minus;
  memcpy(q, &point, sizeof point);
}
// Returns point i, or for points of four columns 2 * i and 2 * i + 1.
template <class Points, class Block>
inline uint64_t eight_columns(const Block& b, int i) {
  const auto* block = reinterpret_cast<const uint8_t*>(&b);
  if constexpr (sizeof(typename Points::Point) == 8) return point_at<Points>(block, i);
  else return point_at<Points>(block, 2 * i) | uint64_t(point_at<Points>(block, 2 * i + 1)) << 32;
}

inline void decode(const BlockIQ2_XXS& b, RowBlock& out) {
  for (int g = 0; g < 8; g++) {
    const uint32_t rest = b.qs[4 * g + 2] | uint32_t(b.qs[4 * g + 3]) << 16;
    for (int i = 0; i < 4; i++)
      put_signed(out.q + 32 * g + 8 * i, eight_columns<PointsOfIQ2_XXS>(b, 4 * g + i),
                 kEvenSigns[rest >> 7 * i & 127]);
    set_scale(out, 2 * g, 2, half_to_float(b.d) * (0.5f + float(rest >> 28)) * 0.25f);
  }
}

inline void decode(const BlockIQ2_XS& b, RowBlock& out) {
  for (int i = 0; i < 32; i++)
    put_signed(out.q + 8 * i, eight_columns<PointsOfIQ2_XS>(b, i), kEvenSigns[b.qs[i] >> 9]);
  for (int g = 0; g < 16; g++)
    set_scale(out, g, 1, half_to_float(b.d) * (0.5f + float(four_bits(b.scales, g))) * 0.25f);
}

inline void decode(const BlockIQ2_S& b, RowBlock& out) {
  for (int i = 0; i < 32; i++)
    put_signed(out.q + 8 * i, eight_columns<PointsOfIQ2_S>(b, i), b.qs[32 + i]);
  for (int g = 0; g < 16; g++)
    set_scale(out, g, 1, half_to_float(b.d) * (0.5f + float(four_bits(b.scales, g))) * 0.25f);
}

inline void decode(const BlockIQ3_XXS& b, RowBlock& out) {
  for (int g = 0; g < 8; g++) {
    const uint32_t rest = word_at(b.qs + 64 + 4 * g);
    for (int i = 0; i < 4; i++)
      put_signed(out.q + 32 * g + 8 * i, eight_columns<PointsOfIQ3_XXS>(b, 4 * g + i),
                 kEvenSigns[rest >> 7 * i & 127]);
    set_scale(out, 2 * g, 2, half_to_float(b.d) * (0.5f + float(rest >> 28)) * 0.5f);
  }
}

inline void decode(const BlockIQ3_S& b, RowBlock& out) {
  for (int i = 0; i < 32; i++)
    put_signed(out.q + 8 * i, eight_columns<PointsOfIQ3_S>(b, i), b.signs[i]);
  for (int g = 0; g < 8; g++)
    set_scale(out, 2 * g, 2, half_to_float(b.d) * float(2 * four_bits(b.scales, g) + 1));
}

// Writes eight values, eight times too large: 8 * point + 1, or - 1 with `minus`.
inline void put_shifted(int8_t* q, uint64_t point, bool minus) {
  for (int l = 0; l < 8; l++) q[l] = int8_t(int(point >> 8 * l & 255) - (minus ? 9 : 7));
}

inline void decode(const BlockIQ1_S& b, RowBlock& out) {
  for (int i = 0; i < 32; i++)
    put_shifted(out.q + 8 * i, eight_columns<PointsOfIQ1_S>(b, i), b.qh[i / 4] >> 15);
  for (int g = 0; g < 8; g++)
    set_scale(out, 2 * g, 2, half_to_float(b.d) * float(2 * (b.qh[g] >> 12 & 7) + 1) * 0.125f);
}

inline void decode(const BlockIQ1_M& b, RowBlock& out) {
  for (int i = 0; i < 32; i++)
    put_shifted(out.q + 8 * i, eight_columns<PointsOfIQ1_M>(b, i), four_bits(b.qh, i) >> 3);
  uint16_t d = 0;
  for (int i = 0; i < 4; i++) d |= short_at(b.scales + 2 * i) >> 12 << 4 * i;
  for (int g = 0; g < 16; g++) {
    const int scale = short_at(b.scales + g / 4 * 2) >> (g % 4 * 3) & 7;
    set_scale(out, g, 1, half_to_float(d) * float(2 * scale + 1) * 0.125f);
  }
}

}  // namespace
