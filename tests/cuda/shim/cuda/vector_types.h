// Vectors of two to four numbers, aligned as on a GPU.
#pragma once
#include "../abi.h"

#define CUDA_ON_CPU_VECTORS(T, NAME, ALIGN2, ALIGN4)         \
  struct alignas(ALIGN2) NAME##2 { T x, y; };                \
  struct alignas(ALIGN4) NAME##4 { T x, y, z, w; };          \
  inline NAME##2 make_##NAME##2(T x, T y) { return {x, y}; } \
  inline NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }
#define CUDA_ON_CPU_VECTOR3(T, NAME) \
  struct NAME##3 { T x, y, z; };
#define CUDA_ON_CPU_MAKE3(T, NAME) \
  inline NAME##3 make_##NAME##3(T x, T y, T z) { return {x, y, z}; }

CUDA_ON_CPU_VECTORS(signed char, char, 2, 4)
CUDA_ON_CPU_VECTORS(unsigned char, uchar, 2, 4)
CUDA_ON_CPU_VECTORS(short, short, 4, 8)
CUDA_ON_CPU_VECTORS(unsigned short, ushort, 4, 8)
CUDA_ON_CPU_VECTORS(int, int, 8, 16)
CUDA_ON_CPU_VECTORS(unsigned, uint, 8, 16)
CUDA_ON_CPU_VECTORS(long long, longlong, 16, 16)
CUDA_ON_CPU_VECTORS(unsigned long long, ulonglong, 16, 16)
CUDA_ON_CPU_VECTORS(float, float, 8, 16)
CUDA_ON_CPU_VECTORS(double, double, 16, 16)
CUDA_ON_CPU_VECTOR3(int, int)
CUDA_ON_CPU_VECTOR3(float, float)
CUDA_ON_CPU_MAKE3(int, int)
CUDA_ON_CPU_MAKE3(unsigned, uint)
CUDA_ON_CPU_MAKE3(float, float)

#undef CUDA_ON_CPU_VECTORS
#undef CUDA_ON_CPU_VECTOR3
#undef CUDA_ON_CPU_MAKE3
