// A thread's scratch memory for one page of the KV cache.
#pragma once
#include <cstddef>
#include <cstdint>

namespace sharpi {

// Returns memory for at least `bytes` bytes that starts on a cache line, valid until the thread's
// next call. It is no template in a header on purpose: compiled for one instruction set under a
// name that all files share, it could be linked into code that runs where that set is missing.
uint8_t* page_scratch(size_t bytes);

}  // namespace sharpi
