// Intrinsics on integers: bits, bytes, products of four bytes.
#pragma once
#include <cstdint>
#include <type_traits>

template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  return T(a) < T(b) ? T(a) : T(b);
}
template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  return T(a) > T(b) ? T(a) : T(b);
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; i++) reversed |= (x >> i & 1) << (31 - i);
  return reversed;
}

inline int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return unsigned((unsigned long long)a * b >> 32);
}

inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
  return unsigned(((uint64_t(high) << 32 | low) << (by & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  return unsigned((uint64_t(high) << 32 | low) >> (by & 31));
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned by) {
  return unsigned((uint64_t(high) << 32 | low) >> (by < 32 ? by : 32));
}

// Bytes of `b:a` chosen by four nibbles; a nibble's top bit spreads the byte's sign instead.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const uint64_t bytes = uint64_t(b) << 32 | a;
  unsigned chosen = 0;
  for (int i = 0; i < 4; i++) {
    const unsigned nibble = selector >> (4 * i) & 15;
    unsigned byte = unsigned(bytes >> (8 * (nibble & 7))) & 255;
    if (nibble & 8) byte = byte & 128 ? 255 : 0;
    chosen |= byte << (8 * i);
  }
  return chosen;
}

inline int __dp4a(int a, int b, int sum) {
  for (int i = 0; i < 4; i++) sum += int(int8_t(a >> 8 * i)) * int8_t(b >> 8 * i);
  return sum;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum) {
  for (int i = 0; i < 4; i++) sum += (a >> 8 * i & 255) * (b >> 8 * i & 255);
  return sum;
}

#define CUDA_ON_CPU_BYTES(NAME, BYTE)                           \
  inline unsigned NAME(unsigned a, unsigned b) {                \
    unsigned result = 0;                                        \
    for (int i = 0; i < 4; i++) {                               \
      const int x = int8_t(a >> 8 * i), y = int8_t(b >> 8 * i); \
      result |= (unsigned(BYTE) & 255) << 8 * i;                \
    }                                                           \
    return result;                                              \
  }
CUDA_ON_CPU_BYTES(__vadd4, x + y)
CUDA_ON_CPU_BYTES(__vsub4, x - y)
CUDA_ON_CPU_BYTES(__vsubss4, min(max(x - y, -128), 127))
CUDA_ON_CPU_BYTES(__vcmpeq4, x == y ? 255 : 0)
CUDA_ON_CPU_BYTES(__vcmpne4, x != y ? 255 : 0)
#undef CUDA_ON_CPU_BYTES
