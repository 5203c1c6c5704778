// Atomics: threads run in turn, so that reading and writing is one step. The engine checks the
// address once.
#pragma once
#include <type_traits>

#include "../abi.h"

namespace emulator {

template <class T, class Change>
__attribute__((no_sanitize("thread"), noinline)) T change(T* address, Site site, Change next) {
  emulator_atomic(address, sizeof(T), site);
  const T before = *address;
  *address = next(before);
  return before;
}

}  // namespace emulator

#define CUDA_ON_CPU_ATOMIC(NAME, NEXT)                                                            \
  template <class T>                                                                              \
  T NAME(T* address, std::common_type_t<T> value, emulator::Site site = emulator::Site::here()) { \
    return emulator::change(address, site, [value](T old) { return T(NEXT); });                   \
  }
CUDA_ON_CPU_ATOMIC(atomicAdd, old + value)
CUDA_ON_CPU_ATOMIC(atomicSub, old - value)
CUDA_ON_CPU_ATOMIC(atomicMax, old > value ? old : value)
CUDA_ON_CPU_ATOMIC(atomicMin, old < value ? old : value)
CUDA_ON_CPU_ATOMIC(atomicExch, ((void)old, value))
CUDA_ON_CPU_ATOMIC(atomicOr, old | value)
CUDA_ON_CPU_ATOMIC(atomicAnd, old& value)
#undef CUDA_ON_CPU_ATOMIC

template <class T>
T atomicCAS(T* address, std::common_type_t<T> expected, std::common_type_t<T> value,
            emulator::Site site = emulator::Site::here()) {
  return emulator::change(address, site, [=](T old) { return old == expected ? T(value) : old; });
}
