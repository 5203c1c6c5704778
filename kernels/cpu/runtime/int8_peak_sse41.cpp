// The int8 products of SSE4.1: pairs into 16 bits, pairs of those into 32.
#if defined(__SSE4_1__)
#include <smmintrin.h>

#include "runtime/int8_peak.h"

namespace sharpi {
namespace {

constexpr int kSums = 12;  // enough to cover the latency, few enough for the registers

void run(int64_t rounds) {
  const __m128i ones = _mm_set1_epi16(1), y = _mm_set1_epi8(-5);
  __m128i x = _mm_set1_epi8(3), sums[kSums];
  for (auto& sum : sums) sum = _mm_setzero_si128();
  for (int64_t i = 0; i < rounds; i++)
    for (auto& sum : sums) {
      asm volatile("" : "+x"(x));  // otherwise the compiler multiplies once for all sums
      sum = _mm_add_epi32(sum, _mm_madd_epi16(_mm_maddubs_epi16(x, y), ones));
    }
  asm volatile("" : : "r"(sums) : "memory");
}

}  // namespace

constinit const Int8Loop kSse41Int8Loop{2.0 * 16 * kSums, run};

}  // namespace sharpi
#endif
