#include "page_scratch.h"

#include <vector>

namespace sharpi {

uint16_t* page_scratch(size_t halves) {
  thread_local std::vector<uint16_t> memory;
  if (memory.size() < halves) memory.resize(halves);
  return memory.data();
}

}  // namespace sharpi
