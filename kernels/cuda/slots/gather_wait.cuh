// Lets blocks of one launch wait until others have copied the experts that they read.
//
// The copying blocks come first in the grid, and wait for nobody. A GPU starts blocks in the order
// of the grid, so all of them have started before a block can wait, however few fit at once.
#pragma once
#include "common/clock.cuh"
#include "gather_experts.cuh"

namespace sharpi {

// Counts the blocks that have copied in its lower bits, and those that have ended in the others. 0
// before the launch, and again after it.
struct GatherWait {
  static constexpr int kEnded = 1 << 12;
  static constexpr unsigned kPollNanoseconds = 100;

  int* counter;
  int num_copying, num_blocks;

  __device__ __forceinline__ int add(int what) const {
    const int before = atomicAdd(counter, what);
    if (before / kEnded + 1 == num_blocks) atomicExch(counter, 0);
    return before % kEnded;
  }

  // Lets the waiting blocks see what this block has copied. The last one adds the time since
  // `since` to `waited`.
  __device__ __forceinline__ void end_copy(const int64_t* since, int64_t* waited) const {
    __threadfence();
    __syncthreads();
    if (threadIdx.x) return;
#ifdef CUDA_ON_CPU
    emulator_arrive(counter);
#endif
    if (add(kEnded + 1) + 1 == num_copying) *waited += nanoseconds() - *since;
  }

  // Called by a block that reads none of the copies.
  __device__ __forceinline__ void pass() const {
    if (threadIdx.x == 0) add(kEnded);
  }

  // Waits for all copies.
  __device__ __forceinline__ void wait() const {
    if (threadIdx.x == 0) {
      while (atomicAdd(counter, 0) % kEnded < num_copying) __nanosleep(kPollNanoseconds);
      __threadfence();
    }
    __syncthreads();
#ifdef CUDA_ON_CPU
    emulator_join(counter);
#endif
    pass();
  }
};

}  // namespace sharpi
