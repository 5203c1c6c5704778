// Lets the other hyper-thread of a core go first while a thread spins.
#pragma once

namespace sharpi {

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace sharpi
