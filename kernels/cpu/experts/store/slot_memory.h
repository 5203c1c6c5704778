// A region of memory that expert slots are cut from, resident in RAM but for what is given back.
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
  // Gives the pages of a region's range to the system; its contents are lost.
  static void give_back(uint8_t* at, size_t bytes);
  // Makes a range resident again, in huge pages where the system has some.
  static void take_back(uint8_t* at, size_t bytes);

 private:
  uint8_t* data_;
  size_t bytes_;
};

}  // namespace sharpi
