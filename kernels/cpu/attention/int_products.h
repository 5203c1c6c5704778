// Products of bytes and of words that are summed in lanes of 32 bits: of AVX-512 VNNI, AVX-VNNI or
// AVX2. All compute the same integers. Internal linkage: compiled with different target flags.
#pragma once
#include <immintrin.h>

#include "vector/wide_floats.h"

namespace {

#if defined(__AVX512F__)
typedef __m512i Wide;
inline Wide load_wide(const void* p) { return _mm512_loadu_si512(p); }
inline Wide all_words(uint32_t x) { return _mm512_set1_epi32(int(x)); }
#else
typedef __m256i Wide;
inline Wide load_wide(const void* p) { return _mm256_loadu_si256((const __m256i*)p); }
inline Wide all_words(uint32_t x) { return _mm256_set1_epi32(int(x)); }
#endif

inline Own to_floats(Wide x) { return __builtin_convertvector((OwnInts)x, Own); }

// Adds the products of two signed words in each lane with two others that all lanes share.
[[gnu::always_inline]] inline Wide add_words(Wide sum, Wide words, Wide pair) {
#if defined(__AVX512F__)
  asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(words), "v"(pair));  // no copies of the sum
  return sum;
#elif defined(__AVXVNNI__)
  return _mm256_dpwssd_avx_epi32(sum, words, pair);
#else
  return _mm256_add_epi32(sum, _mm256_madd_epi16(words, pair));
#endif
}

// Four bytes of a key in each lane, which are multiplied with four of a query.
struct KeyBytes {
#if defined(__AVX512F__) || defined(__AVXVNNI__)
  // Products are those of the stored numbers, which contain `zero`.
  static constexpr bool kHasZero = true;
  Wide numbers;
  KeyBytes(const uint8_t* p, Wide) : numbers(load_wide(p)) {}
  [[gnu::always_inline]] Wide add_to(Wide sum, uint32_t quad) const {
#if defined(__AVX512F__)
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(numbers), "v"(all_words(quad)));
    return sum;
#else
    return _mm256_dpbusd_avx_epi32(sum, numbers, all_words(quad));
#endif
  }
#else
  // Two products of signs and magnitudes fit in 16 bits.
  static constexpr bool kHasZero = false;
  Wide levels, magnitudes;
  KeyBytes(const uint8_t* p, Wide zero)
      : levels(_mm256_sub_epi8(load_wide(p), zero)), magnitudes(_mm256_abs_epi8(levels)) {}
  [[gnu::always_inline]] Wide add_to(Wide sum, uint32_t quad) const {
    const Wide signs = _mm256_sign_epi8(all_words(quad), levels);
    const Wide pairs = _mm256_maddubs_epi16(magnitudes, signs);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
#endif
};

}  // namespace
