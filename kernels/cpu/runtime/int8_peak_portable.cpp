// The int8 products of the compiler's baseline target, as the compiler vectorises a plain loop.
#include <cstring>

#include "runtime/int8_peak.h"

namespace sharpi {
namespace {

constexpr int kLength = 256;

void keep(const void* result) { asm volatile("" : : "r"(result) : "memory"); }

void run(int64_t rounds) {
  alignas(64) int8_t x[kLength], y[kLength];
  memset(x, 3, sizeof x);
  memset(y, -5, sizeof y);
  for (int64_t i = 0; i < rounds; i++) {
    keep(x);
    keep(y);
    int32_t sum = 0;
    for (int j = 0; j < kLength; j++) sum += int32_t(x[j]) * y[j];
    keep(&sum);
  }
}

}  // namespace

constinit const Int8Loop kPortableInt8Loop{2.0 * kLength, run};

}  // namespace sharpi
