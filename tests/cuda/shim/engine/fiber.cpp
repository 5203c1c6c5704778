// Switching between fibers: by hand on x86-64, as swapcontext makes two system calls; elsewhere
// with it.
#include "fiber.h"

#include <sys/mman.h>

#include <cstdlib>

namespace emulator {
namespace {

constexpr size_t kGuardBytes = 4096;

char* new_stack(size_t num_bytes) {
  void* memory = mmap(nullptr, num_bytes + kGuardBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, kGuardBytes, PROT_NONE) != 0) abort();
  return static_cast<char*>(memory) + kGuardBytes;
}

}  // namespace

#ifdef __x86_64__
// Saves what the calling convention keeps, stores the stack pointer, takes the other's.
extern "C" void emulator_switch(void** save, void* load);
asm(R"(
.text
.type emulator_switch,@function
emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");

void Fiber::prepare(void (*main)()) {
  if (is_prepared_) return;
  is_prepared_ = true;
  if (!stack_) stack_ = new_stack(kStackBytes);
  constexpr int kSavedRegisters = 6;
  void** top = reinterpret_cast<void**>(stack_ + kStackBytes);
  *--top = nullptr;  // where main would return to; also aligns its stack
  *--top = reinterpret_cast<void*>(main);
  for (int i = 0; i < kSavedRegisters; i++) *--top = nullptr;
  stack_pointer_ = top;
}

void Fiber::switch_to(Fiber& next) { emulator_switch(&stack_pointer_, next.stack_pointer_); }
#else
void Fiber::prepare(void (*main)()) {
  if (is_prepared_) return;
  is_prepared_ = true;
  if (!stack_) stack_ = new_stack(kStackBytes);
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_;
  context_.uc_stack.ss_size = kStackBytes;
  context_.uc_link = nullptr;
  makecontext(&context_, main, 0);
}

void Fiber::switch_to(Fiber& next) { swapcontext(&context_, &next.context_); }
#endif

}  // namespace emulator
