#include "runtime/cpu_features.h"

#include <algorithm>
#include <array>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace sharpi {
namespace {

#if defined(__x86_64__)
enum class Register { Eax, Ebx, Ecx, Edx };

// Four registers by CPUID, zeros where the processor lacks the leaf. Not every compiler's library
// answers __builtin_cpu_supports (zig's says no to everything), and older compilers do not know all
// names. Each leaf is read once, because virtual machines intercept CPUID, which takes
// microseconds.
template <unsigned leaf, unsigned subleaf>
const std::array<unsigned, 4>& cpuid() {
  static const auto registers = [] {
    std::array<unsigned, 4> r{};
    __get_cpuid_count(leaf, subleaf, &r[0], &r[1], &r[2], &r[3]);
    return r;
  }();
  return registers;
}

template <unsigned leaf, unsigned subleaf>
bool cpuid_bit(Register in, int bit) {
  return cpuid<leaf, subleaf>()[int(in)] >> bit & 1;
}

// Whether the operating system saves the registers of these bits of XCR0.
bool saves(unsigned wanted) {
  if (!cpuid_bit<1, 0>(Register::Ecx, 27)) return false;
  unsigned low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & wanted) == wanted;
}
bool saves_sse() { return true; }  // every 64-bit system does
bool saves_avx() { return saves(0x6); }
bool saves_avx512() { return saves(0xE6); }

#define FEATURE(name, saved, leaf, subleaf, in, bit) \
  {name, [] { return saved() && cpuid_bit<leaf, subleaf>(Register::in, bit); }}
#define AVX2                                                                          \
  FEATURE("avx2", saves_avx, 7, 0, Ebx, 5), FEATURE("fma", saves_avx, 1, 0, Ecx, 12), \
      FEATURE("f16c", saves_avx, 1, 0, Ecx, 29), FEATURE("bmi2", saves_avx, 7, 0, Ebx, 8)
#define AVX512_VNNI                                      \
  AVX2, FEATURE("avx512f", saves_avx512, 7, 0, Ebx, 16), \
      FEATURE("avx512bw", saves_avx512, 7, 0, Ebx, 30),  \
      FEATURE("avx512dq", saves_avx512, 7, 0, Ebx, 17),  \
      FEATURE("avx512vl", saves_avx512, 7, 0, Ebx, 31),  \
      FEATURE("avx512vnni", saves_avx512, 7, 0, Ecx, 11)

constexpr CpuFeature kSse41[] = {FEATURE("ssse3", saves_sse, 1, 0, Ecx, 9),
                                 FEATURE("sse4.1", saves_sse, 1, 0, Ecx, 19)};
constexpr CpuFeature kAvx2[] = {AVX2};
constexpr CpuFeature kAvxVnni[] = {AVX2, FEATURE("avxvnni", saves_avx, 7, 1, Eax, 4)};
constexpr CpuFeature kAvx512Vnni[] = {AVX512_VNNI};
constexpr CpuFeature kAvx512Vbmi[] = {AVX512_VNNI,
                                      FEATURE("avx512vbmi", saves_avx512, 7, 0, Ecx, 1),
                                      FEATURE("gfni", saves_avx, 7, 0, Ecx, 8)};
constexpr CpuFeature kAvx512Bf16[] = {AVX512_VNNI,
                                      FEATURE("avx512bf16", saves_avx512, 7, 1, Eax, 5)};
#else
constexpr CpuFeatures kSse41, kAvx2, kAvxVnni, kAvx512Vnni, kAvx512Vbmi, kAvx512Bf16;
#endif

}  // namespace

CpuFeatures sse41_features() { return kSse41; }
CpuFeatures avx2_features() { return kAvx2; }
CpuFeatures avx_vnni_features() { return kAvxVnni; }
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
