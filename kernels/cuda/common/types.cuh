// Definitions shared by all kernels: integer types, for which NVRTC has no header, and common
// names.
//
// Every file compiles unchanged with NVRTC and, for the tests, with g++ and a header that emulates
// CUDA (CUDA_ON_CPU): inline PTX, here or in a kernel, always has a C++ equivalent. Where accesses
// are not checked (CUDA_ON_CPU_UNCHECKED), sums and maxima of lanes have one, too.
#pragma once

#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#endif
#include <cuda_fp16.h>

#include "quant_blocks.h"

#ifndef DYN_SHARED  // the emulation defines its own
#define DYN_SHARED(T, name) extern __shared__ __align__(16) T name[]
#endif
#define KERNEL extern "C" __global__ void

// Whether to compile the entry points for a size: ONLY_SIZE names the one of a model, as each size
// takes NVRTC a second or more.
#ifdef ONLY_SIZE
#define HAS_SIZE(size) (ONLY_SIZE == (size))
#else
#define HAS_SIZE(size) 1
#endif

namespace sharpi {

constexpr unsigned kFullWarp = 0xffffffffu;
constexpr int kWarp = 32;

// Returns the sum over `width` adjacent lanes (a power of two up to 32), in the same order on every
// lane.
__device__ __forceinline__ float sum_lanes(float x, int width = kWarp) {
#ifdef CUDA_ON_CPU_UNCHECKED
  return emulator_sum_lanes(x, width);
#else
  for (int offset = width / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kFullWarp, x, offset);
  return x;
#endif
}

}  // namespace sharpi
