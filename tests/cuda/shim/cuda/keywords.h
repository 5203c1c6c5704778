// The words that CUDA adds to C++, as a compiler without it reads them.
#pragma once

#define CUDA_ON_CPU 1
#define __CUDA_ARCH__ 750

// Listing the entry points of a text, once its macros are expanded, needs a mark on each.
#ifdef CUDA_ON_CPU_LIST_ENTRIES
#define __global__ CUDA_ON_CPU_ENTRY
#else
#define __global__
#endif
#define __device__
#define __host__
#define __constant__
#define __shared__ \
  thread_local  // one segment for all of a library's, which the engine can find; blocks run in turn
#define __forceinline__ inline  // each function is compiled once for all that call it
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)
// On a GPU: extern __shared__ __align__(16) T name[]
#define DYN_SHARED(T, name) T* const name = static_cast<T*>(emulator_dynamic_shared())
