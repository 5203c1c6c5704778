// Programmatic launches: a kernel may begin while the one before it in the stream still runs, so
// that its start costs no time.
#pragma once

namespace sharpi {

// Waits until all earlier launches have ended, and lets the next one begin. It is the first thing
// that all threads of a kernel do, before they touch memory; kernels without it are launched in
// turn.
__device__ __forceinline__ void wait_for_last_launch() {
#ifdef CUDA_ON_CPU
  emulator_wait_for_last_launch();
#elif __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace sharpi
