// Memory of a thread for one page of the KV cache, as attention needs it on the way.
#pragma once
#include <cstddef>
#include <cstdint>

namespace sharpi {

// At least so many f16, until the thread asks again. Those who call it have no template of their
// own for that: compiled for one instruction set under a name that all share, it might run where
// that set is missing.
uint16_t* page_scratch(size_t halves);

}  // namespace sharpi
