// Makes an entry point callable from Python: `launch_<entry>` takes arguments as cuLaunchKernel
// does, by address, and `signature_<entry>` says which they must be.
#pragma once
#include <type_traits>
#include <utility>

#include "../abi.h"

namespace emulator {

// "p8": a pointer, "i4": a signed number of 4 bytes, "u4", "f4"
template <class T>
void describe(char*& out) {
  char kind = std::is_pointer<T>::value ? 'p' : 'f';
  if (std::is_integral<T>::value) kind = std::is_signed<T>::value ? 'i' : 'u';
  *out++ = kind;
  *out++ = char('0' + sizeof(T));
  *out++ = ' ';
}

template <class... A>
void describe_all(void (*)(A...), char* out) {
  (describe<A>(out), ...);
  *out = 0;
}

template <class... A, size_t... I>
void launch(void (*kernel)(A...), const Request* request, void** arguments,
            std::index_sequence<I...>) {
  struct Call {
    void (*kernel)(A...);
    void** arguments;
  } call{kernel, arguments};
  const auto body = [](void* data) __attribute__((no_sanitize("thread"))) {
    const Call* call = static_cast<Call*>(data);
    call->kernel(*static_cast<std::remove_cv_t<A>*>(call->arguments[I])...);
  };
  emulator_run(request, {body, &call});
}

template <class... A>
void launch(void (*kernel)(A...), const Request* request, void** arguments) {
  launch(kernel, request, arguments, std::index_sequence_for<A...>{});
}

inline thread_local char
    shared_anchor;  // a library without __shared__ variables has the segment all the same

}  // namespace emulator

#define CUDA_ON_CPU_EXPORT(ENTRY)                                                       \
  extern "C" __attribute__((visibility("default"))) void launch_##ENTRY(                \
      const emulator::Request* request, void** arguments) {                             \
    *const_cast<volatile char*>(&emulator::shared_anchor) = 0;                          \
    emulator::launch(ENTRY, request, arguments);                                        \
  }                                                                                     \
  extern "C" __attribute__((visibility("default"))) void signature_##ENTRY(char* out) { \
    emulator::describe_all(ENTRY, out);                                                 \
  }
