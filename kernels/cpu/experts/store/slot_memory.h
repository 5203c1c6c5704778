// The memory that expert slots are cut from: one region, resident in RAM from the start.
#pragma once
#include <cstddef>
#include <cstdint>

namespace sharpi {

// Aligned to 2 MiB, in huge pages if the system provides them. Throws std::bad_alloc.
class SlotMemory {
 public:
  explicit SlotMemory(size_t bytes);
  ~SlotMemory();
  SlotMemory(const SlotMemory&) = delete;
  SlotMemory& operator=(const SlotMemory&) = delete;

  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  uint8_t* data_;
  size_t bytes_;
};

}  // namespace sharpi
