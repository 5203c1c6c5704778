#include "page_scratch.h"

#include <vector>

namespace sharpi {
namespace {

struct alignas(64) Line {
  uint8_t bytes[64];
};

}  // namespace

uint8_t* page_scratch(size_t bytes) {
  thread_local std::vector<Line> memory;
  const size_t lines = bytes / sizeof(Line) + 1;
  if (memory.size() < lines) memory.resize(lines);
  return memory.data()->bytes;
}

}  // namespace sharpi
