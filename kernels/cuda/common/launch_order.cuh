// Programmatic launches: a kernel may begin while the preceding one in the stream still runs, which
// hides its start.
#pragma once

namespace sharpi {

// Waits until all earlier launches have ended, and lets the next one begin. All threads of a kernel
// call it first, before they touch memory; kernels without it are launched one after the other.
__device__ __forceinline__ void wait_for_last_launch() {
#ifdef CUDA_ON_CPU
  emulator_wait_for_last_launch();
#elif __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace sharpi
