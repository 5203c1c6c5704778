// A 16-bit float and a pair of them, given how their bits become a 32-bit float and back.
#pragma once
#include <cstdint>

// Not explicit, as CUDA's are not; __hfma rounds once, through double.
#define CUDA_ON_CPU_SMALL_FLOAT(T, T2, TO_BITS, TO_VALUE)                                \
  class T {                                                                              \
   public:                                                                               \
    T() = default;                                                                       \
    T(float value) : bits_(TO_BITS(value)) {}                                            \
    T(double value) : T(float(value)) {}                                                 \
    T(int value) : T(float(value)) {}                                                    \
    operator float() const { return TO_VALUE(bits_); }                                   \
    static T from_bits(uint16_t bits) {                                                  \
      T made;                                                                            \
      made.bits_ = bits;                                                                 \
      return made;                                                                       \
    }                                                                                    \
    uint16_t bits() const { return bits_; }                                              \
    T& operator+=(T other) { return *this = T(float(*this) + float(other)); }            \
    T& operator*=(T other) { return *this = T(float(*this) * float(other)); }            \
                                                                                         \
   private:                                                                              \
    uint16_t bits_;                                                                      \
  };                                                                                     \
  struct alignas(4) T2 {                                                                 \
    T x, y;                                                                              \
  };                                                                                     \
  inline T operator+(T a, T b) { return T(float(a) + float(b)); }                        \
  inline T operator-(T a, T b) { return T(float(a) - float(b)); }                        \
  inline T operator*(T a, T b) { return T(float(a) * float(b)); }                        \
  inline T operator/(T a, T b) { return T(float(a) / float(b)); }                        \
  inline bool operator<(T a, T b) { return float(a) < float(b); }                        \
  inline bool operator>(T a, T b) { return float(a) > float(b); }                        \
  inline T __hadd(T a, T b) { return a + b; }                                            \
  inline T __hsub(T a, T b) { return a - b; }                                            \
  inline T __hmul(T a, T b) { return a * b; }                                            \
  inline T __hfma(T a, T b, T c) { return T(float(double(a) * double(b) + double(c))); } \
  inline T2 __hadd2(T2 a, T2 b) { return {a.x + b.x, a.y + b.y}; }                       \
  inline T2 __hmul2(T2 a, T2 b) { return {a.x * b.x, a.y * b.y}; }                       \
  inline T2 __hfma2(T2 a, T2 b, T2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
