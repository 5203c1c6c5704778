// The launch's fault: the first thing that went wrong, with its place.
#pragma once
#include "../abi.h"

namespace emulator {

// Where faults of this launch go.
void expect_faults(Fault* target);

bool faulted();

// Keeps the first fault; from the scheduler.
void fault(Site site, const char* format, ...) __attribute__((format(printf, 2, 3)));

// From the running thread, which ends here.
[[noreturn]] void fail(Site site, const char* format, ...) __attribute__((format(printf, 2, 3)));

// The running thread's access to bytes of an argument, by an instruction of the kernel's library;
// ends it.
[[noreturn]] void fail_access(int argument, uint64_t instruction, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

}  // namespace emulator
