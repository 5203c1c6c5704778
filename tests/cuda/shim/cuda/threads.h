// A thread's place, barriers, and the operations of a warp.
#pragma once
#include "../abi.h"
#include "keywords.h"

namespace emulator {

// Reads a number of the running thread's place, which is none of the kernel's own memory: by a
// statement that the sanitizers overlook.
__forceinline__ unsigned placed(const unsigned& number) {
#ifdef __x86_64__
  unsigned value;
  asm("movl %1, %0" : "=r"(value) : "m"(number));
  return value;
#else
  return number;
#endif
}

__forceinline__ uint3 placed_three(const unsigned (&numbers)[3]) {
  return {placed(numbers[0]), placed(numbers[1]), placed(numbers[2])};
}

}  // namespace emulator

#define threadIdx (uint3{emulator::placed(emulator_here.thread), 0, 0})
#define blockIdx (emulator::placed_three(emulator_here.block))
#define blockDim (dim3(emulator::placed(emulator_here.block_size)))
#define gridDim (emulator::placed_three(emulator_here.grid))
constexpr int warpSize = 32;

inline void __syncthreads(emulator::Site site = emulator::Site::here()) {
  emulator_barrier(emulator::Vote::kNone, 0, site);
}
inline int __syncthreads_count(int value, emulator::Site site = emulator::Site::here()) {
  return emulator_barrier(emulator::Vote::kCount, value, site);
}
inline int __syncthreads_and(int value, emulator::Site site = emulator::Site::here()) {
  return emulator_barrier(emulator::Vote::kAll, value, site);
}
inline int __syncthreads_or(int value, emulator::Site site = emulator::Site::here()) {
  return emulator_barrier(emulator::Vote::kAny, value, site);
}

inline void __syncwarp(unsigned mask = 0xffffffffu, emulator::Site site = emulator::Site::here()) {
  emulator_sync_warp(mask, site);
}
inline unsigned __ballot_sync(unsigned mask, int value,
                              emulator::Site site = emulator::Site::here()) {
  return emulator_ballot(mask, value, site);
}
inline int __any_sync(unsigned mask, int value, emulator::Site site = emulator::Site::here()) {
  return emulator_ballot(mask, value, site) != 0;
}
inline int __all_sync(unsigned mask, int value, emulator::Site site = emulator::Site::here()) {
  return emulator_ballot(mask, value, site) == mask;
}

// Fences order one thread's writes for others; here threads run in turn, so that they always are.
inline void __threadfence() { emulator_fence(); }
inline void __nanosleep(unsigned) {}
inline void __threadfence_block() {}
inline void __trap(emulator::Site site = emulator::Site::here()) { emulator_trap(site); }

namespace emulator {

inline int lane() { return int(threadIdx.x % 32); }

template <class T>
T exchange(unsigned mask, T value, int source, Site site) {
  static_assert(sizeof(T) <= 16, "a shuffle of more than 16 bytes");
  T taken;
  emulator_exchange(mask, &value, &taken, sizeof value, source, site);
  return taken;
}

template <class T>
T shuffle(unsigned mask, T value, Take take, int operand, int width, Site site) {
  static_assert(sizeof(T) <= 16, "a shuffle of more than 16 bytes");
  T taken;
  emulator_shuffle(mask, &value, &taken, sizeof value, take, operand, width, site);
  return taken;
}

}  // namespace emulator

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              emulator::Site site = emulator::Site::here()) {
  return emulator::shuffle(mask, value, emulator::Take::kLane, source, width, site);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32,
                  emulator::Site site = emulator::Site::here()) {
  return emulator::shuffle(mask, value, emulator::Take::kXor, bits, width, site);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32,
                   emulator::Site site = emulator::Site::here()) {
  return emulator::shuffle(mask, value, emulator::Take::kDown, int(by), width, site);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32,
                 emulator::Site site = emulator::Site::here()) {
  return emulator::shuffle(mask, value, emulator::Take::kUp, int(by), width, site);
}

// A build without checks has these in place of the kernels' loops of shuffles, for five times fewer
// switches between fibers.
#ifdef CUDA_ON_CPU_UNCHECKED
inline float emulator_sum_lanes(float x, int width, emulator::Site site = emulator::Site::here()) {
  return emulator_sum_floats(x, width, site);
}
inline float emulator_max_lanes(float x, emulator::Site site = emulator::Site::here()) {
  return emulator_max_floats(x, 32, site);
}
inline int emulator_max_lanes(int x, emulator::Site site = emulator::Site::here()) {
  return emulator_max_integers(x, 32, site);
}
#endif
