// The int8 products of AVX2: pairs into 16 bits, pairs of those into 32.
#if defined(__AVX2__)
#include <immintrin.h>

#include "runtime/int8_peak.h"

namespace sharpi {
namespace {

constexpr int kSums = 12;  // enough to cover the latency, few enough for the registers

void run(int64_t rounds) {
  const __m256i ones = _mm256_set1_epi16(1), y = _mm256_set1_epi8(-5);
  __m256i x = _mm256_set1_epi8(3), sums[kSums];
  for (auto& sum : sums) sum = _mm256_setzero_si256();
  for (int64_t i = 0; i < rounds; i++)
    for (auto& sum : sums) {
      asm volatile("" : "+x"(x));  // otherwise the compiler multiplies once for all sums
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), ones));
    }
  asm volatile("" : : "r"(sums) : "memory");
}

}  // namespace

constinit const Int8Loop kAvx2Int8Loop{2.0 * 32 * kSums, run};

}  // namespace sharpi
#endif
