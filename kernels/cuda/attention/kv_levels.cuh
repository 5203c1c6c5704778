// The packed types of keys and values, as kernels/cpu/attention/kv_types.h has them: how numbers
// become codes and a scale, and which numbers the codes stand for.
//
// A number is scale * (level of the code), plus a minimum where the type has one. Each type has
//   kLow, kHasTop                 bits of a code: the low ones, and one more
//   kHasMinimum, kHasRowScale     a minimum beside the scale; one scale for a row, not each 32
//   kZero                         what `bytes` adds to the levels
//   bytes(low, top)               the levels of four codes, as bytes
//   measure(numbers, count)       the scale of so many numbers, by a warp
//   encode(x, scale)              the code of a number
#pragma once
#include "common/block_sums.cuh"
#include "quant/unit.cuh"

namespace sharpi {

// Turns numbers into codes: code = (x - minimum) * inverse + the type's own offset.
struct CodeScale {
  float scale, minimum, inverse;
};

// Returns the inverse of a scale, or 0 if that is not finite; NaN for a NaN.
__device__ __forceinline__ float inverse_of(float scale) {
  return fabsf(scale) < 1e-35f ? 0.f : __fdiv_rn(1.f, scale);
}

// Returns the magnitude's bits; those of a NaN are larger than any number's.
__device__ __forceinline__ int magnitude(float x) { return __float_as_int(x) & 0x7fffffff; }

// Returns the lanes' number of largest magnitude, the first of equal ones.
__device__ __forceinline__ float extreme_of(float x) {
  const int lane = threadIdx.x % kWarp, bits = magnitude(x);
  const int behind = max_lanes(bits == max_lanes(bits) ? kWarp - 1 - lane : -1);
  return __shfl_sync(kFullWarp, x, kWarp - 1 - behind);
}

// Types whose levels are whole numbers from -kZero on.
template <int kOffset, bool kIsLong>
struct EvenLevels {
  static constexpr int kLow = 4, kZero = kOffset;
  static constexpr bool kHasTop = kIsLong, kHasRowScale = false;

  static __device__ __forceinline__ uint32_t bytes(uint32_t low, uint32_t top) {
    const uint32_t codes = __byte_perm(low & 0x0f0f, low >> 4 & 0x0f0f, 0x5140);
    return kHasTop ? codes | uint32_t(spread_to_bit_4(top)) : codes;
  }
  static __device__ __forceinline__ int encode(float x, CodeScale s) {
    constexpr float kLargest = kIsLong ? 31.f : 15.f;
    const float code = (x - s.minimum) * s.inverse + (kZero + 0.5f);
    return int(code > 0.f ? fminf(code, kLargest) : 0.f);
  }
};

struct LevelsQ5_1 : EvenLevels<0, true> {
  static constexpr bool kHasMinimum = true;
  static __device__ __forceinline__ CodeScale measure(const float* numbers, int) {
    const float x = numbers[threadIdx.x % kWarp], peak = __int_as_float(max_lanes(magnitude(x)));
    const float low = -max_lanes(-x), range = max_lanes(x) - low;
    const float scale = peak < infinity() ? range * (1 / 31.f) : peak;
    return {scale, low, inverse_of(scale)};
  }
};

// Types whose number of largest magnitude is the lowest level.
template <int kOffset, bool kIsLong>
struct LevelsToExtreme : EvenLevels<kOffset, kIsLong> {
  static constexpr bool kHasMinimum = false;
  static __device__ __forceinline__ CodeScale measure(const float* numbers, int) {
    const float scale = extreme_of(numbers[threadIdx.x % kWarp]) * (-1.f / kOffset);
    return {scale, 0.f, inverse_of(scale)};
  }
};
using LevelsQ5_0 = LevelsToExtreme<16, true>;
using LevelsQ4_0 = LevelsToExtreme<8, false>;

// Types whose levels are in a table of 8 or 16, in rising order.
template <class Levels, int kBits>
struct TabledLevels {
  static constexpr int kCount = 1 << kBits, kZero = 128;
  static constexpr bool kHasMinimum = false;

  // Looks up four codes, of four bits each.
  static __device__ __forceinline__ uint32_t look_up(uint32_t codes) {
    if (kBits == 3) return __byte_perm(Levels::word(0), Levels::word(1), codes);
    return look_up_4<Levels>(codes & 0x7777, 0x3210 | (codes & 0x8888) >> 1);
  }
  static __device__ __forceinline__ float level(uint32_t code) {
    return float(int8_t(look_up(code) & 255));
  }
  static __device__ __forceinline__ float known_level(int code) {
    return float(int8_t(Levels::word(code / 4) >> code % 4 * 8 & 255));
  }
  static __device__ __forceinline__ int encode(float x, CodeScale s) {
    int code = 0;
#pragma unroll
    for (int k = 1; k < kCount; k++)
      code += x * s.inverse > (known_level(k - 1) + known_level(k)) / 2.f;
    return code;
  }
  // Fits the scale to the levels that `inverse` chooses: the least squared error, each weighted by
  // the number's own square if `weighs`.
  static __device__ __forceinline__ CodeScale fit(const float* numbers, int count, float inverse,
                                                  bool weighs) {
    float products = 0.f, squares = 0.f;
#pragma unroll 1
    for (int i = threadIdx.x % kWarp; i < count; i += kWarp) {
      const float x = numbers[i], own = level(uint32_t(encode(x, {0.f, 0.f, inverse})));
      const float weight = weighs ? x * x : 1.f;
      products += weight * own * x;
      squares += weight * own * own;
    }
    products = sum_lanes(products), squares = sum_lanes(squares);
    return {squares > 0.f ? __fdiv_rn(products, squares) : products, 0.f, inverse};
  }
};

struct LevelsIQ4_NL : TabledLevels<Table<SHARPI_IQ4_VALUES>, 4> {
  static constexpr int kLow = 4;
  static constexpr bool kHasTop = false, kHasRowScale = false;

  static __device__ __forceinline__ uint32_t bytes(uint32_t low, uint32_t) {
    return look_up(low) ^ 0x80808080u;
  }
  static __device__ __forceinline__ CodeScale measure(const float* numbers, int count) {
    const float lowest = extreme_of(numbers[threadIdx.x % kWarp]);
    return fit(numbers, count, inverse_of(lowest * (-1 / 127.f)), true);
  }
};

// The levels that Lloyd and Max found for normally distributed numbers, in units of a 59th of the
// deviation.
struct LevelsTURBO3 : TabledLevels<Table<-127, -79, -45, -14, 14, 45, 79, 127>, 3> {
  static constexpr int kLow = 2;
  static constexpr bool kHasTop = true, kHasRowScale = true;

  static __device__ __forceinline__ uint32_t bytes(uint32_t low, uint32_t top) {
    const uint32_t pairs = (low | low << 4) & 0x0f0f, bits = (top | top << 6) & 0x0303;
    return look_up(((pairs | pairs << 2) & 0x3333) | ((bits | bits << 3) & 0x1111) << 2) ^
           0x80808080u;
  }
  static __device__ __forceinline__ CodeScale measure(const float* numbers, int count) {
    float squares = 0.f;
    for (int i = threadIdx.x % kWarp; i < count; i += kWarp) squares += numbers[i] * numbers[i];
    const float mean = sum_lanes(squares) / float(count);
    return fit(numbers, count, mean < 1e-35f ? 0.f : 59.f * rsqrtf(mean), false);
  }
};

}  // namespace sharpi
