// The int8 products of AVX-VNNI: four into 32 bits.
#if defined(__AVXVNNI__)
#include <immintrin.h>

#include "runtime/int8_peak.h"

namespace sharpi {
namespace {

constexpr int kSums = 12;  // enough to cover the latency, few enough for the registers

void run(int64_t rounds) {
  const __m256i x = _mm256_set1_epi8(3), y = _mm256_set1_epi8(-5);
  __m256i sums[kSums];
  for (auto& sum : sums) sum = _mm256_setzero_si256();
  for (int64_t i = 0; i < rounds; i++)
    for (auto& sum : sums) sum = _mm256_dpbusd_avx_epi32(sum, x, y);
  asm volatile("" : : "r"(sums) : "memory");
}

}  // namespace

constinit const Int8Loop kAvxVnniInt8Loop{2.0 * 32 * kSums, run};

}  // namespace sharpi
#endif
