// Rounds floats to int8 with one scale for every 32: scale = max |x| / 127, to nearest, ties to
// even.
#pragma once
#include "matmul/matmul.h"
#include "registers.h"

namespace sharpi::avx512 {
namespace {

// Loads 16 values; those past `count` are zero.
inline Floats load_part(const float* x, int count) {
  return count >= 16 ? _mm512_loadu_ps(x)
                     : _mm512_maskz_loadu_ps(__mmask16(count > 0 ? (1 << count) - 1 : 0), x);
}

// Returns the largest magnitude of 32 values, or NaN if there is one: magnitudes sort like
// integers, and a NaN is above all.
inline float peak_of(Floats low, Floats high) {
  const Ints magnitude = dwords(0x7fffffff);
  const int bits = _mm512_reduce_max_epi32(_mm512_max_epi32(
      bit_and(_mm512_castps_si512(low), magnitude), bit_and(_mm512_castps_si512(high), magnitude)));
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

inline void round_to(int8_t* out, Floats x, float inverse) {
  const Ints q = _mm512_cvtps_epi32(_mm512_mul_ps(x, _mm512_set1_ps(inverse)));
  _mm_store_si128((__m128i*)out, _mm512_cvtepi32_epi8(q));
}

// Sets the sums of 16 and of 32 of the rounded values.
inline void set_sums(Activation& a) {
  Ints eights = zero();  // sums of 8 as int16, each 8 * 128 too large
  for (int i = 0; i < 4; i++) {
    const Ints biased = _mm512_xor_si512(load(a.q + 64 * i), bytes(128));
    const __m128i sums = _mm512_cvtepi64_epi16(_mm512_sad_epu8(biased, zero()));
    eights = _mm512_mask_broadcast_i32x4(eights, __mmask16(15 << 4 * i), sums);
  }
  const Ints sixteens = _mm512_madd_epi16(eights, _mm512_set1_epi16(1));
  const __m256i sum16 = _mm512_cvtepi32_epi16(_mm512_sub_epi32(sixteens, dwords(16 * 128)));
  _mm256_storeu_si256((__m256i*)a.sum16, sum16);
  _mm_storeu_si128((__m128i*)a.sum32,
                   _mm256_cvtepi32_epi16(_mm256_madd_epi16(sum16, _mm256_set1_epi16(1))));
}

// Rounds one block. A NaN or an infinity among the values gives a NaN or infinite scale, which
// shows in the result.
inline void quantise_block(const float* x, int count, Activation& a) {
  for (int g = 0; g < 8; g++) {
    const Floats low = load_part(x + 32 * g, count - 32 * g);
    const Floats high = load_part(x + 32 * g + 16, count - 32 * g - 16);
    const float peak = peak_of(low, high), inverse = peak > 0 ? 127 / peak : 0;
    round_to(a.q + 32 * g, low, inverse);
    round_to(a.q + 32 * g + 16, high, inverse);
    a.scale[g] = peak / 127;
  }
  set_sums(a);
}

inline void quantise(const float* values, int n, Activation* out) {
  for (; n > 0; n -= 256, values += 256, out++) quantise_block(values, n < 256 ? n : 256, *out);
}

}  // namespace
}  // namespace sharpi::avx512
