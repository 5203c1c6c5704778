// Runs CUDA C++ kernels on the CPU: each thread of a block is a fiber, one block at a time.
// The kernel source is compiled by g++ with this folder first on the include path.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <tuple>
#include <type_traits>
#include "coc_abi.h"

#define CUDA_ON_CPU 1
#define __CUDA_ARCH__ CUDA_ON_CPU_ARCH
#ifndef CUDA_ON_CPU_ARCH
#define CUDA_ON_CPU_ARCH 750
#endif
#ifdef CUDA_ON_CPU_LIST_ENTRIES
#define __global__ CUDA_ON_CPU_ENTRY
#else
#define __global__
#endif
#define __device__
#define __host__
#define __constant__
#define __shared__ thread_local            // block scope: static for the OS thread = one per block
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __grid_constant__
#define __cluster_dims__(...)

// ---------------------------------------------------------------- vector types
#define COC_VEC(T, N, A2, A4)                                                                       \
    struct alignas(A2) N##2 { T x, y; };                                                            \
    struct N##3 { T x, y, z; };                                                                     \
    struct alignas(A4) N##4 { T x, y, z, w; };                                                      \
    inline N##2 make_##N##2(T x, T y) { return {x, y}; }                                            \
    inline N##3 make_##N##3(T x, T y, T z) { return {x, y, z}; }                                    \
    inline N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
COC_VEC(signed char, char, 2, 4) COC_VEC(unsigned char, uchar, 2, 4) COC_VEC(short, short, 4, 8)
COC_VEC(unsigned short, ushort, 4, 8) COC_VEC(int, int, 8, 16) COC_VEC(float, float, 8, 16)
COC_VEC(long long, longlong, 16, 16) COC_VEC(double, double, 16, 16)
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// ---------------------------------------------------------------- threads, barriers, warps
#define threadIdx (coc_now->tid)
#define blockIdx (coc_now->bid)
#define blockDim (coc_now->bdim)
#define gridDim (coc_now->gdim)
constexpr int warpSize = 32;
#define DYN_SHARED(T, name) T* name = (T*)coc_dynamic()       // on a GPU: extern __shared__ __align__(16) T name[]
#define __syncthreads() ((void)coc_barrier(__LINE__, 0, 0))
#define __syncthreads_count(p) coc_barrier(__LINE__, (p) != 0, 1)
#define __syncthreads_and(p) coc_barrier(__LINE__, (p) != 0, 2)
#define __syncthreads_or(p) coc_barrier(__LINE__, (p) != 0, 3)
#define __ballot_sync(m, p) coc_ballot(m, (p) != 0, __LINE__)
#define __any_sync(m, p) (coc_ballot(m, (p) != 0, __LINE__) != 0)
#define __all_sync(m, p) (coc_ballot(m, (p) != 0, __LINE__) == (m))
namespace coc {
struct At {                                                    // so that a warp operation knows its line
    int line;
    static int lane() { return (coc_now->tid.x + coc_now->bdim.x * (coc_now->tid.y + coc_now->bdim.y * coc_now->tid.z)) & 31; }
    template <class T> T x(unsigned m, T v, int s) { static_assert(sizeof(T) <= 16, ""); T r; coc_exchange(m, &v, &r, sizeof v, s, line); return r; }
    template <class T> T shfl(unsigned m, T v, int s, int w = 32) { return x(m, v, (lane() & ~(w - 1)) | (s & (w - 1))); }
    template <class T> T shfl_xor(unsigned m, T v, int s, int w = 32) { s ^= lane(); return x(m, v, s < (lane() & ~(w - 1)) + w ? s : -1); }
    template <class T> T shfl_down(unsigned m, T v, unsigned d, int w = 32) { int s = lane() + (int)d; return x(m, v, s < (lane() & ~(w - 1)) + w ? s : -1); }
    template <class T> T shfl_up(unsigned m, T v, unsigned d, int w = 32) { int s = lane() - (int)d; return x(m, v, s >= (lane() & ~(w - 1)) ? s : -1); }
    void syncwarp(unsigned m = 0xffffffffu) { coc_syncwarp(m, line); }
};
}
#define __shfl_sync coc::At{__LINE__}.shfl
#define __shfl_xor_sync coc::At{__LINE__}.shfl_xor
#define __shfl_down_sync coc::At{__LINE__}.shfl_down
#define __shfl_up_sync coc::At{__LINE__}.shfl_up
#define __syncwarp coc::At{__LINE__}.syncwarp
inline void __threadfence() {}
inline void __threadfence_block() {}
#define __trap() coc_fail("__trap", __LINE__)

namespace coc {
// ---- argument passing: void** as of cuLaunchKernel; sig() is what the Python side checks against
template <class T> inline void sig1(char*& p) {
    using U = std::remove_cv_t<T>;
    *p++ = std::is_pointer<U>::value ? 'P' : std::is_floating_point<U>::value ? 'f' : std::is_integral<U>::value ? (std::is_signed<U>::value ? 'i' : 'u') : 'V';
    p += sprintf(p, "%d ", (int)sizeof(U));
}
template <class... A> inline void sig(void (*)(A...), char* out) { char* p = out; (sig1<A>(p), ...); *p = 0; }
template <class... A, size_t... I>
inline int launch(void (*k)(A...), const unsigned* d, void** args, int order, int check, void (*touch)(), char* err, size_t el, std::index_sequence<I...>) {
    struct Pack { void (*k)(A...); std::tuple<std::remove_cv_t<A>...> a; } p{k, {*(std::remove_cv_t<A>*)args[I]...}};
    return coc_run(d, order, check, [](void* v) { Pack& q = *(Pack*)v; q.k(std::get<I>(q.a)...); }, &p, touch, err, el);
}
template <class... A> inline int launch(void (*k)(A...), const unsigned* d, void** args, int order, int check, void (*touch)(), char* err, size_t el) {
    return launch(k, d, args, order, check, touch, err, el, std::index_sequence_for<A...>{});
}
static thread_local char tls_anchor;                           // the module always has a thread-local segment
inline void touch() { volatile char* p = &tls_anchor; *p = 0; }
#define CUDA_ON_CPU_EXPORT(SYM)                                                                        \
    extern "C" __attribute__((visibility("default"))) int launch_##SYM(const unsigned* d, void** a, int o, int c, char* e, size_t n) { return coc::launch(SYM, d, a, o, c, coc::touch, e, n); } \
    extern "C" __attribute__((visibility("default"))) void signature_##SYM(char* out) { coc::sig(SYM, out); }
}  // namespace coc

// ---------------------------------------------------------------- atomics (fibers never run at once; not seen by the race checker)
template <class T, class F> __attribute__((no_sanitize("thread"), noinline)) T coc_rmw(T* p, F f) { T o = *p; *p = f(o); return o; }
#define COC_ATOMIC(NAME, EXPR) template <class T> inline T NAME(T* p, std::common_type_t<T> v) { return coc_rmw(p, [v](T o) __attribute__((no_sanitize("thread"))) { return (T)(EXPR); }); }
COC_ATOMIC(atomicAdd, o + v) COC_ATOMIC(atomicSub, o - v) COC_ATOMIC(atomicMax, o > v ? o : v) COC_ATOMIC(atomicMin, o < v ? o : v)
COC_ATOMIC(atomicExch, v) COC_ATOMIC(atomicOr, o | v) COC_ATOMIC(atomicAnd, o & v)
template <class T> inline T atomicCAS(T* p, std::common_type_t<T> c, std::common_type_t<T> v) { return coc_rmw(p, [c, v](T o) __attribute__((no_sanitize("thread"))) { return o == c ? v : o; }); }

// ---------------------------------------------------------------- loads, bits, integers
template <class T> inline T __ldg(const T* p) { return *p; }
template <class T> inline T __ldcs(const T* p) { return *p; }
template <class T> inline T __ldcg(const T* p) { return *p; }
template <class T> inline void __stcs(T* p, T v) { *p = v; }
template <class A, class B> inline std::common_type_t<A, B> min(A a, B b) { using C = std::common_type_t<A, B>; return (C)a < (C)b ? (C)a : (C)b; }
template <class A, class B> inline std::common_type_t<A, B> max(A a, B b) { using C = std::common_type_t<A, B>; return (C)a > (C)b ? (C)a : (C)b; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __brev(unsigned x) { unsigned r = 0; for (int i = 0; i < 32; ++i) r |= (x >> i & 1) << (31 - i); return r; }
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
    const uint64_t v = (uint64_t)b << 32 | a; unsigned r = 0;
    for (int i = 0; i < 4; ++i) { unsigned k = s >> (4 * i) & 15, x = (unsigned)(v >> (8 * (k & 7))) & 255; if (k & 8) x = x & 128 ? 255 : 0; r |= x << (8 * i); }
    return r;
}
inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned s) { s &= 31; return s ? hi << s | lo >> (32 - s) : hi; }
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned s) { s &= 31; return s ? lo >> s | hi << (32 - s) : lo; }
inline int __dp4a(int a, int b, int c) { for (int i = 0; i < 4; ++i) c += (int)(int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i); return c; }
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) { for (int i = 0; i < 4; ++i) c += (a >> 8 * i & 255) * (b >> 8 * i & 255); return c; }
#define COC_SIMD4(NAME, EXPR)                                                                       \
    inline unsigned NAME(unsigned a, unsigned b) { unsigned r = 0; for (int i = 0; i < 4; ++i) { int x = (int8_t)(a >> 8 * i), y = (int8_t)(b >> 8 * i); (void)x; (void)y; r |= ((unsigned)(EXPR) & 255u) << 8 * i; } return r; }
COC_SIMD4(__vadd4, x + y) COC_SIMD4(__vsub4, x - y)
COC_SIMD4(__vsubss4, x - y > 127 ? 127 : x - y < -128 ? -128 : x - y) COC_SIMD4(__vcmpeq4, x == y ? 255 : 0) COC_SIMD4(__vcmpne4, x != y ? 255 : 0)
inline int __mul24(int a, int b) { return a * b; }
inline int __mulhi(int a, int b) { return (int)(((long long)a * b) >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a * b) >> 32); }

// ---------------------------------------------------------------- floats
template <class To, class From> inline To coc_bits(From f) { static_assert(sizeof(To) == sizeof(From), ""); To t; memcpy(&t, &f, sizeof t); return t; }
inline float __int_as_float(int i) { return coc_bits<float>(i); }
inline float __uint_as_float(unsigned i) { return coc_bits<float>(i); }
inline int __float_as_int(float f) { return coc_bits<int>(f); }
inline unsigned __float_as_uint(float f) { return coc_bits<unsigned>(f); }
inline int coc_sat(double d) { return d != d ? 0 : d > 2147483647. ? 2147483647 : d < -2147483648. ? -2147483647 - 1 : (int)d; }
inline int __float2int_rn(float f) { return coc_sat(nearbyint((double)f)); }
inline int __float2int_rz(float f) { return coc_sat(trunc((double)f)); }
inline int __float2int_rd(float f) { return coc_sat(floor((double)f)); }
inline int __float2int_ru(float f) { return coc_sat(ceil((double)f)); }
inline float __int2float_rn(int i) { return (float)i; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline void __sincosf(float x, float* s, float* c) { *s = sinf(x); *c = cosf(x); }
inline void sincospif(float x, float* s, float* c) { *s = sinf(x * (float)M_PI); *c = cosf(x * (float)M_PI); }
inline float __saturatef(float x) { return x < 0.f || x != x ? 0.f : x > 1.f ? 1.f : x; }
inline float exp10f_(float x) { return powf(10.f, x); }

// ---------------------------------------------------------------- half and bfloat16
inline uint16_t coc_f2h(float f) {                         // round to nearest even
    uint32_t u = coc_bits<uint32_t>(f), s = u >> 16 & 0x8000, a = u & 0x7fffffff;
    if (a > 0x7f800000) return (uint16_t)(s | 0x7fff);
    if (a >= 0x477ff000) return (uint16_t)(s | 0x7c00);
    if (a < 0x33000001) return (uint16_t)s;
    int e = (int)(a >> 23) - 127; uint32_t m = (a & 0x7fffff) | 0x800000, sh = e < -14 ? (uint32_t)(-1 - e) : 13u;
    uint32_t r = m >> sh, rem = m & ((1u << sh) - 1), half = 1u << (sh - 1);
    if (rem > half || (rem == half && (r & 1))) ++r;
    return (uint16_t)(s + (e < -14 ? r : r + ((uint32_t)(e + 14) << 10)));
}
inline float coc_h2f(uint16_t h) {
    uint32_t s = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff;
    if (e == 31) return coc_bits<float>(s | 0x7f800000 | m << 13);
    if (e == 0) { float f = (float)m * 5.9604644775390625e-8f; return s ? -f : f; }
    return coc_bits<float>(s | (e + 112) << 23 | m << 13);
}
inline uint16_t coc_f2b(float f) { uint32_t u = coc_bits<uint32_t>(f); return (u & 0x7fffffff) > 0x7f800000 ? 0x7fff : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16); }
inline float coc_b2f(uint16_t b) { return coc_bits<float>((uint32_t)b << 16); }
#define COC_F16(T, T2, F2, TOF)                                                                     \
    struct T { uint16_t x; T() = default; T(float f) : x(F2(f)) {} T(double f) : x(F2((float)f)) {} T(int f) : x(F2((float)f)) {} \
        operator float() const { return TOF(x); } T& operator+=(T o) { *this = T((float)*this + (float)o); return *this; } \
        T& operator*=(T o) { *this = T((float)*this * (float)o); return *this; } };                 \
    inline T operator+(T a, T b) { return T((float)a + (float)b); } inline T operator-(T a, T b) { return T((float)a - (float)b); } \
    inline T operator*(T a, T b) { return T((float)a * (float)b); } inline T operator/(T a, T b) { return T((float)a / (float)b); } \
    inline bool operator<(T a, T b) { return (float)a < (float)b; } inline bool operator>(T a, T b) { return (float)a > (float)b; } \
    inline T __hadd(T a, T b) { return a + b; } inline T __hsub(T a, T b) { return a - b; } inline T __hmul(T a, T b) { return a * b; } \
    inline T __hfma(T a, T b, T c) { return T((float)((double)a * (double)b + (double)c)); }         \
    inline T __hmax(T a, T b) { return a > b ? a : b; } inline T __hneg(T a) { return T(-(float)a); } \
    struct alignas(4) T2 { T x, y; };                                                               \
    inline T2 __hadd2(T2 a, T2 b) { return {a.x + b.x, a.y + b.y}; } inline T2 __hmul2(T2 a, T2 b) { return {a.x * b.x, a.y * b.y}; } \
    inline T2 __hsub2(T2 a, T2 b) { return {a.x - b.x, a.y - b.y}; }                                \
    inline T2 __hfma2(T2 a, T2 b, T2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
COC_F16(__half, __half2, coc_f2h, coc_h2f)
COC_F16(__nv_bfloat16, __nv_bfloat162, coc_f2b, coc_b2f)
#undef COC_F16
typedef __half half; typedef __half2 half2; typedef __nv_bfloat16 nv_bfloat16; typedef __nv_bfloat162 nv_bfloat162;
inline float __half2float(__half h) { return (float)h; }
inline __half __float2half(float f) { return __half(f); }
inline __half __float2half_rn(float f) { return __half(f); }
inline __half __ushort_as_half(unsigned short u) { __half h; h.x = u; return h; }
inline unsigned short __half_as_ushort(__half h) { return h.x; }
inline float2 __half22float2(__half2 h) { return {(float)h.x, (float)h.y}; }
inline __half2 __floats2half2_rn(float a, float b) { return {__half(a), __half(b)}; }
inline __half2 __float22half2_rn(float2 f) { return {__half(f.x), __half(f.y)}; }
inline __half2 __halves2half2(__half a, __half b) { return {a, b}; }
inline __half2 __half2half2(__half a) { return {a, a}; }
inline __half2 __float2half2_rn(float f) { return {__half(f), __half(f)}; }
inline __half2 make_half2(__half a, __half b) { return {a, b}; }
inline float __low2float(__half2 h) { return (float)h.x; }
inline float __high2float(__half2 h) { return (float)h.y; }
inline __half __low2half(__half2 h) { return h.x; }
inline __half __high2half(__half2 h) { return h.y; }
inline float __bfloat162float(__nv_bfloat16 h) { return (float)h; }
inline __nv_bfloat16 __float2bfloat16(float f) { return __nv_bfloat16(f); }
inline __nv_bfloat16 __float2bfloat16_rn(float f) { return __nv_bfloat16(f); }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short u) { __nv_bfloat16 h; h.x = u; return h; }
inline float2 __bfloat1622float2(__nv_bfloat162 h) { return {(float)h.x, (float)h.y}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return {__nv_bfloat16(a), __nv_bfloat16(b)}; }
// ---------------------------------------------------------------- mma.sync.m16n8k16 f32 += f16 f16, lane layout as in the PTX manual
inline void coc_mma_m16n8k16_f16(float* d, const unsigned* a, const unsigned* b, int line) {
    struct A4 { unsigned v[4]; } ma{{a[0], a[1], a[2], a[3]}}; struct B2 { unsigned v[2]; } mb{{b[0], b[1]}};
    const int l = coc::At::lane(), g = l >> 2, t = l & 3;
    float r[4] = {0, 0, 0, 0};
    for (int kt = 0; kt < 4; ++kt) {                            // lane (row, kt) holds A columns 2kt, 2kt+1, 2kt+8, 2kt+9
        const A4 x = coc::At{line}.shfl(0xffffffffu, ma, g * 4 + kt);
        B2 y[2]; for (int c = 0; c < 2; ++c) y[c] = coc::At{line}.shfl(0xffffffffu, mb, (2 * t + c) * 4 + kt);
        for (int c = 0; c < 2; ++c) for (int hi = 0; hi < 2; ++hi) for (int e = 0; e < 2; ++e) {
            const float bv = coc_h2f((uint16_t)(y[c].v[hi] >> 16 * e));
            r[c] += coc_h2f((uint16_t)(x.v[2 * hi] >> 16 * e)) * bv; r[2 + c] += coc_h2f((uint16_t)(x.v[2 * hi + 1] >> 16 * e)) * bv;
        }
    }
    for (int i = 0; i < 4; ++i) d[i] += r[i];
}
