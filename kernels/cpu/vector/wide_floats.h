// Sixteen floats as several of the machine's own vectors. The compiler's 64-byte vector types would
// be shorter to write, but where registers are smaller the compiler keeps those in memory and takes
// comparisons apart value by value.
//
// Everything here has internal linkage, because the same header is compiled with different target
// flags.
#pragma once
#include <cstdint>
#include <cstring>
#include <utility>

namespace {

constexpr int kLanes = 16;
#if defined(__AVX512F__)
constexpr int kOwnLanes = 16;
#elif defined(__AVX__)
constexpr int kOwnLanes = 8;
#else
constexpr int kOwnLanes = 4;
#endif
constexpr int kOwnParts = kLanes / kOwnLanes;
typedef float Own __attribute__((vector_size(kOwnLanes * sizeof(float))));
typedef int32_t OwnInts __attribute__((vector_size(kOwnLanes * sizeof(float))));

inline Own load_own(const float* p) {
  Own v;
  memcpy(&v, p, sizeof v);
  return v;
}
[[gnu::always_inline]] inline void store_own(float* p, Own v) { memcpy(p, &v, sizeof v); }
inline OwnInts own_lanes(int part) {
  OwnInts lanes;
  for (int l = 0; l < kOwnLanes; l++) lanes[l] = part * kOwnLanes + l;
  return lanes;
}

// Returns the vector whose lane l is lane `order(l)` of x and y together, y's after x's. GCC 11 has
// no __builtin_shufflevector, and clang has nothing else.
template <class Order, int... kLane>
[[gnu::always_inline]] inline Own shuffled(Own x, Own y, Order order,
                                           std::integer_sequence<int, kLane...>) {
#ifdef __clang__
  return __builtin_shufflevector(x, y, order(kLane)...);
#else
  return __builtin_shuffle(x, y, OwnInts{order(kLane)...});
#endif
}
template <class Order>
[[gnu::always_inline]] inline Own shuffled(Own x, Own y, Order order) {
  return shuffled(x, y, order, std::make_integer_sequence<int, kOwnLanes>{});
}

struct F32x16 {
  Own part[kOwnParts];
};

// Returns the vector whose part i is f(i).
template <class F>
[[gnu::always_inline]] inline F32x16 each_part(F f) {
  F32x16 v;
#pragma GCC unroll 4
  for (int i = 0; i < kOwnParts; i++) v.part[i] = f(i);
  return v;
}

[[gnu::always_inline]] inline F32x16 load(const float* p) {
  return each_part([=](int i) { return load_own(p + i * kOwnLanes); });
}
[[gnu::always_inline]] inline void store(float* p, F32x16 v) {
#pragma GCC unroll 4
  for (int i = 0; i < kOwnParts; i++) store_own(p + i * kOwnLanes, v.part[i]);
}
[[gnu::always_inline]] inline F32x16 broadcast(float x) {
  // subtracting zero is a no-op; adding zero is not
  return each_part([=](int) { return x - Own{}; });
}

[[gnu::always_inline]] inline F32x16 operator+(F32x16 a, F32x16 b) {
  return each_part([&](int i) { return a.part[i] + b.part[i]; });
}
[[gnu::always_inline]] inline F32x16 operator-(F32x16 a, F32x16 b) {
  return each_part([&](int i) { return a.part[i] - b.part[i]; });
}
[[gnu::always_inline]] inline F32x16 operator*(F32x16 a, F32x16 b) {
  return each_part([&](int i) { return a.part[i] * b.part[i]; });
}
[[gnu::always_inline]] inline F32x16 operator/(F32x16 a, F32x16 b) {
  return each_part([&](int i) { return a.part[i] / b.part[i]; });
}
[[gnu::always_inline]] inline F32x16 operator-(F32x16 a) {
  return each_part([&](int i) { return -a.part[i]; });
}
[[gnu::always_inline]] inline F32x16 operator+(F32x16 a, float b) { return a + broadcast(b); }
[[gnu::always_inline]] inline F32x16 operator+(float a, F32x16 b) { return broadcast(a) + b; }
[[gnu::always_inline]] inline F32x16 operator-(F32x16 a, float b) { return a - broadcast(b); }
[[gnu::always_inline]] inline F32x16 operator*(F32x16 a, float b) { return a * broadcast(b); }
[[gnu::always_inline]] inline F32x16 operator*(float a, F32x16 b) { return broadcast(a) * b; }
[[gnu::always_inline]] inline F32x16 operator/(float a, F32x16 b) { return broadcast(a) / b; }
[[gnu::always_inline]] inline F32x16& operator+=(F32x16& a, F32x16 b) { return a = a + b; }

[[gnu::always_inline]] inline F32x16 max(F32x16 a, F32x16 b) {
  return each_part([&](int i) { return a.part[i] > b.part[i] ? a.part[i] : b.part[i]; });
}
[[gnu::always_inline]] inline F32x16 min(F32x16 a, F32x16 b) {
  return each_part([&](int i) { return a.part[i] < b.part[i] ? a.part[i] : b.part[i]; });
}
// Returns v, or 0 where x is under the limit.
[[gnu::always_inline]] inline F32x16 zero_under(F32x16 x, float limit, F32x16 v) {
  return each_part([&](int i) { return x.part[i] < limit ? Own{} : v.part[i]; });
}
// Returns v in lanes `first` to `last`, x in the others.
[[gnu::always_inline]] inline F32x16 keep_lanes(F32x16 v, int first, int last, float x) {
  return each_part([&](int i) {
    const OwnInts lane = own_lanes(i);
    return ((lane < first) | (lane > last)) ? x - Own{} : v.part[i];
  });
}
// Returns 2^n for integers n.
[[gnu::always_inline]] inline F32x16 power_of_two(F32x16 n) {
  return each_part([&](int i) {
    const OwnInts exponent = (__builtin_convertvector(n.part[i], OwnInts) + 127) << 23;
    Own power;
    memcpy(&power, &exponent, sizeof power);
    return power;
  });
}

// Exchanges the lanes of `a` whose number contains the bit `kStep` for those of `b` whose number
// does not.
template <int kStep>
[[gnu::always_inline]] inline void exchange(F32x16& a, F32x16& b) {
  const F32x16 x = a, y = b;
  if constexpr (kStep >= kOwnLanes) {
    constexpr int kParts = kStep / kOwnLanes;
    a = each_part([&](int i) { return i & kParts ? y.part[i - kParts] : x.part[i]; });
    b = each_part([&](int i) { return i & kParts ? y.part[i] : x.part[i + kParts]; });
  } else {
    constexpr auto low = [](int lane) { return lane & kStep ? lane - kStep + kOwnLanes : lane; };
    constexpr auto high = [](int lane) { return lane & kStep ? lane + kOwnLanes : lane + kStep; };
    a = each_part([&](int i) { return shuffled(x.part[i], y.part[i], low); });
    b = each_part([&](int i) { return shuffled(x.part[i], y.part[i], high); });
  }
}
template <int kStep>
[[gnu::always_inline]] inline void exchange_all(F32x16 rows[kLanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; i++)
    if (!(i & kStep)) exchange<kStep>(rows[i], rows[i + kStep]);
}
// Transposes sixteen rows into sixteen columns: four rounds that swap halves, quarters, pairs and
// single lanes.
inline void transpose(F32x16 rows[kLanes]) {
  exchange_all<8>(rows);
  exchange_all<4>(rows);
  exchange_all<2>(rows);
  exchange_all<1>(rows);
}

}  // namespace
