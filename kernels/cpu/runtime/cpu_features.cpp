#include "runtime/cpu_features.h"

#include <algorithm>

namespace sharpi {
namespace {

#if defined(__x86_64__)
// __builtin_cpu_supports takes literals only; it also checks that the operating system saves the
// registers.
#define HAS(name) {name, [] { return bool(__builtin_cpu_supports(name)); }}
#define AVX2 HAS("avx2"), HAS("fma"), HAS("f16c"), HAS("bmi2")
#define AVX512_VNNI \
  AVX2, HAS("avx512f"), HAS("avx512bw"), HAS("avx512dq"), HAS("avx512vl"), HAS("avx512vnni")

constexpr CpuFeature kAvx2[] = {AVX2};
constexpr CpuFeature kAvx512Vnni[] = {AVX512_VNNI};
constexpr CpuFeature kAvx512Vbmi[] = {AVX512_VNNI, HAS("avx512vbmi"), HAS("gfni")};
constexpr CpuFeature kAvx512Bf16[] = {AVX512_VNNI, HAS("avx512bf16")};
#else
constexpr CpuFeatures kAvx2, kAvx512Vnni, kAvx512Vbmi, kAvx512Bf16;
#endif

}  // namespace

CpuFeatures avx2_features() { return kAvx2; }
CpuFeatures avx512_vnni_features() { return kAvx512Vnni; }
CpuFeatures avx512_vbmi_features() { return kAvx512Vbmi; }
CpuFeatures avx512_bf16_features() { return kAvx512Bf16; }

bool all_present(CpuFeatures features) {
  return std::all_of(features.begin(), features.end(),
                     [](const CpuFeature& each) { return each.present(); });
}

std::string missing(CpuFeatures features) {
  std::string names;
  for (const CpuFeature& each : features)
    if (!each.present()) names += (names.empty() ? "" : ", ") + std::string(each.name);
  return names;
}

}  // namespace sharpi
