// What a thread does that spins: it lets the other thread of its core go first.
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
