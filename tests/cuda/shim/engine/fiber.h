// A thread of execution that gives way only when it says so.
#pragma once
#include <cstddef>
#include <cstdint>
#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace emulator {

class Fiber {
 public:
  // The next switch to it calls `main`, which never returns, unless it is in the midst of it.
  void prepare(void (*main)());

  // What it was doing is forgotten.
  void forget() { is_prepared_ = false; }

  // Goes on with `next`; returns when somebody switches back.
  void switch_to(Fiber& next);

  // Whether an address is a local variable of this fiber.
  bool owns(uintptr_t address) const { return address - uintptr_t(stack_) < kStackBytes; }

 private:
  static constexpr size_t kStackBytes = 256 << 10;
  char* stack_ = nullptr;
  bool is_prepared_ = false;
#ifdef __x86_64__
  void* stack_pointer_ = nullptr;
#else
  ucontext_t context_;
#endif
};

}  // namespace emulator
