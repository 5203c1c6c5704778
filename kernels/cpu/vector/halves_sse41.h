// fp16 made float with SSE4.1, where the processor has no instruction for it.
//
// Internal linkage, as in wide_floats.h.
#pragma once
#include <smmintrin.h>

namespace {

// Converts the fp16 in the low halves of four dwords, whose high halves are 0. A subnormal one is
// the difference of two normal floats. Infinities and NaN move up to where those of float32 are.
inline __m128 from_four_halves(__m128i x) {
  const __m128i magnitude = _mm_slli_epi32(_mm_and_si128(x, _mm_set1_epi32(0x7fff)), 13);
  const __m128i sign = _mm_slli_epi32(_mm_and_si128(x, _mm_set1_epi32(0x8000)), 16);
  const __m128i rebias = _mm_set1_epi32(112 << 23), smallest = _mm_set1_epi32(113 << 23);
  const __m128i infinite = _mm_cmpgt_epi32(magnitude, _mm_set1_epi32((31 << 23) - 1));
  const __m128i moved = _mm_add_epi32(rebias, _mm_and_si128(infinite, rebias));
  const __m128i normal = _mm_add_epi32(magnitude, moved);
  const __m128 subnormal =
      _mm_castsi128_ps(_mm_add_epi32(magnitude, smallest)) - _mm_castsi128_ps(smallest);
  const __m128i is_subnormal = _mm_cmpgt_epi32(_mm_set1_epi32(1 << 23), magnitude);
  return _mm_castsi128_ps(
      _mm_or_si128(sign, _mm_blendv_epi8(normal, _mm_castps_si128(subnormal), is_subnormal)));
}
inline __m128 low_four_halves(__m128i x) { return from_four_halves(_mm_cvtepu16_epi32(x)); }
inline __m128 high_four_halves(__m128i x) {
  return from_four_halves(_mm_unpackhi_epi16(x, _mm_setzero_si128()));
}

}  // namespace
