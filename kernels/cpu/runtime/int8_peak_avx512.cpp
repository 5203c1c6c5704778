// The int8 products of AVX-512 VNNI: four at a time into 32 bits.
#if defined(__AVX512VNNI__)
#include <immintrin.h>

#include "runtime/int8_peak.h"

namespace sharpi {
namespace {

constexpr int kSums = 12;  // enough to cover the latency

void run(int64_t rounds) {
  const __m512i x = _mm512_set1_epi8(3), y = _mm512_set1_epi8(-5);
  __m512i sums[kSums];
  for (auto& sum : sums) sum = _mm512_setzero_si512();
  for (int64_t i = 0; i < rounds; i++)
    for (auto& sum : sums) sum = _mm512_dpbusd_epi32(sum, x, y);
  asm volatile("" : : "r"(sums) : "memory");
}

}  // namespace

constinit const Int8Loop kAvx512VnniInt8Loop{2.0 * 64 * kSums, run};

}  // namespace sharpi
#endif
