// The packed types of keys and values: how 32 numbers, or a head's row, become codes and a scale,
// and which numbers the codes stand for. Internal linkage: compiled with different target flags.
//
// A number is scale * (level of the code), plus the block's minimum where the type has one. Scales
// are chosen as in ggml's types of the same names; a NaN among the numbers gives a scale of NaN.
#pragma once
#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <cmath>

#include "kv_pages.h"
#include "quant/quantise.h"

namespace {
using namespace sharpi;

// Scales a block to codes: code = (x - minimum) * inverse + the type's own offset.
struct BlockScale {
  float scale, minimum, inverse;
};

// Returns the number of largest magnitude, or NaN if there is one.
inline float extreme_of(const float* x, int count) {
  float peak = 0;
  int32_t bits = 0;
  for (int i = 0; i < count; i++)
    if (const int32_t own = float_bits(x[i]) & 0x7fffffff; own > bits) bits = own, peak = x[i];
  return peak;
}
constexpr float kTiny = 1e-35f;  // below it, inverses would not be finite
inline float inverse_of(float scale) { return std::fabs(scale) < kTiny ? 0.f : 1.f / scale; }

// Replaces every code of a group, below 16, by its entry of a table.
inline void look_up_group(uint8_t* codes, const uint8_t table[16]) {
#if defined(__AVX512BW__)
  const __m512i entries = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)table));
  for (int i = 0; i < 512; i += 64)
    _mm512_storeu_si512(codes + i, _mm512_shuffle_epi8(entries, _mm512_loadu_si512(codes + i)));
#elif defined(__AVX2__)
  const __m256i entries = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)table));
  for (int i = 0; i < 512; i += 32) {
    __m256i* at = (__m256i*)(codes + i);
    _mm256_storeu_si256(at, _mm256_shuffle_epi8(entries, _mm256_loadu_si256(at)));
  }
#elif defined(__aarch64__)
  const uint8x16_t entries = vld1q_u8(table);
  for (int i = 0; i < 512; i += 16) vst1q_u8(codes + i, vqtbl1q_u8(entries, vld1q_u8(codes + i)));
#else
  for (int i = 0; i < 512; i++) codes[i] = table[codes[i]];
#endif
}

// Types whose levels are whole numbers from -kZero on. Unpacked, kZero is part of the numbers.
template <int kBitsOfCode, int kZeroCode>
struct EvenLevels {
  static constexpr int kBits = kBitsOfCode, kZero = kZeroCode;
  static constexpr bool kHasEvenLevels = true;
  static void to_numbers(uint8_t*) {}
  static void encode(const float* x, BlockScale s, uint8_t* codes) {
    constexpr float kLargest = (1 << kBits) - 1;
    for (int i = 0; i < kKvBlock; i++) {
      const float code = (x[i] - s.minimum) * s.inverse + (kZero + 0.5f);
      codes[i] = uint8_t(int(code > 0 ? code < kLargest ? code : kLargest : 0));
    }
  }
};

struct TypeQ8_0 : EvenLevels<8, 128> {
  static constexpr KvType kType = KvType::Q8_0;
  static BlockScale measure(const float* x, int) {
    const float peak = peak_of(x);
    return {peak < kTiny ? 0.f : peak / 127.f, 0, peak < kTiny ? 0.f : 127.f / peak};
  }
};
struct TypeQ5_1 : EvenLevels<5, 0> {
  static constexpr KvType kType = KvType::Q5_1;
  static BlockScale measure(const float* x, int count) {
    float low = x[0], high = x[0];
    for (int i = 1; i < count; i++) low = std::min(low, x[i]), high = std::max(high, x[i]);
    const float peak = peak_of(x), scale = std::isfinite(peak) ? (high - low) / 31.f : peak;
    return {scale, low, inverse_of(scale)};
  }
};
struct TypeQ5_0 : EvenLevels<5, 16> {
  static constexpr KvType kType = KvType::Q5_0;
  static BlockScale measure(const float* x, int count) {
    const float scale = extreme_of(x, count) / -16.f;
    return {scale, 0, inverse_of(scale)};
  }
};
struct TypeQ4_0 : EvenLevels<4, 8> {
  static constexpr KvType kType = KvType::Q4_0;
  static BlockScale measure(const float* x, int count) {
    const float scale = extreme_of(x, count) / -8.f;
    return {scale, 0, inverse_of(scale)};
  }
};

// Types whose levels are in a table, in rising order.
template <class Table, int kBitsOfCode>
struct TabledLevels {
  static constexpr int kBits = kBitsOfCode, kCount = 1 << kBits, kZero = 128;
  static constexpr bool kHasEvenLevels = false;

  static void to_numbers(uint8_t* codes) {
    uint8_t table[16] = {};
    for (int i = 0; i < kCount; i++) table[i] = uint8_t(Table::kLevels[i] + kZero);
    look_up_group(codes, table);
  }
  static void encode(const float* x, BlockScale s, uint8_t* codes) {
    int found[kKvBlock] = {};
    for (int k = 1; k < kCount; k++) {
      const float middle = (Table::kLevels[k - 1] + Table::kLevels[k]) / 2.f;
      for (int i = 0; i < kKvBlock; i++) found[i] += x[i] * s.inverse > middle;
    }
    for (int i = 0; i < kKvBlock; i++) codes[i] = uint8_t(found[i]);
  }
  // Fits the scale to the levels that `inverse` chooses: the least squared error, each weighted by
  // the number's own square if `weighs`.
  static BlockScale fit(const float* x, int count, float inverse, bool weighs) {
    float products = 0, squares = 0;
    for (int d = 0; d < count; d += kKvBlock) {
      uint8_t codes[kKvBlock];
      encode(x + d, {0, 0, inverse}, codes);
      for (int i = 0; i < kKvBlock; i++) {
        const float level = Table::kLevels[codes[i]], weight = weighs ? x[d + i] * x[d + i] : 1.f;
        products += weight * level * x[d + i], squares += weight * level * level;
      }
    }
    return {squares > 0 ? products / squares : products, 0, inverse};
  }
};

struct NonlinearLevels {
  static constexpr int8_t kLevels[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                       1,    13,   25,  38,  53,  69,  89,  113};
};
struct TypeIQ4_NL : TabledLevels<NonlinearLevels, 4> {
  static constexpr KvType kType = KvType::IQ4_NL;
  static BlockScale measure(const float* x, int count) {
    return fit(x, count, inverse_of(extreme_of(x, count) / kLevelsFirst), true);
  }
  static constexpr float kLevelsFirst = NonlinearLevels::kLevels[0];
};

// The levels that Lloyd and Max found for normally distributed numbers, which those of a rotated
// row nearly are: 0.2451, 0.7560, 1.3439 and 2.1520 times the deviation, here in units of 59.
struct NormalLevels {
  static constexpr int8_t kLevels[] = {-127, -79, -45, -14, 14, 45, 79, 127};
  static constexpr float kDeviation = 59.f;
};
struct TypeTurbo3 : TabledLevels<NormalLevels, 3> {
  static constexpr KvType kType = KvType::Turbo3;
  static BlockScale measure(const float* x, int count) {
    float squares = 0;
    for (int i = 0; i < count; i++) squares += x[i] * x[i];
    const float deviation = std::sqrt(squares / float(count));
    return fit(x, count, inverse_of(deviation / NormalLevels::kDeviation), false);
  }
};

// Calls `add` with each packed type.
template <class Add>
constexpr void each_packed_type(Add add) {
  add(TypeQ8_0{}), add(TypeQ5_1{}), add(TypeQ5_0{});
  add(TypeQ4_0{}), add(TypeIQ4_NL{}), add(TypeTurbo3{});
}

}  // namespace
