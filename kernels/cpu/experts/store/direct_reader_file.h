// One file of a model, read past the page cache and watched for changes.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace sharpi {

// The reason why a read gave no data: an errno, or one of these.
constexpr int kReadFine = 0, kFileChanged = -1;

class DirectFile {
 public:
  // Opens the file; throws std::system_error naming the path. `direct`: reads bypass the page cache
  // where the file system allows it; otherwise the cache is told to drop what was read.
  DirectFile(const std::string& path, bool direct);
  ~DirectFile();
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  // Reads [offset, offset + bytes), or up to the end of the file; all three are aligned to 4096.
  // Returns kFileChanged where the file is no longer the one that was opened: the data must not be
  // used.
  int read(uint8_t* to, uint64_t offset, size_t bytes);
  bool is_direct() const { return is_direct_.load(std::memory_order_relaxed); }
  // Returns a sentence about a failed read.
  std::string describe(int fault) const;

 private:
  int read_all(uint8_t* to, uint64_t offset, size_t bytes);
  void leave_direct();
  bool is_unchanged() const;

  const std::string path_;
  int file_;
  std::atomic<bool> is_direct_;
  uint64_t bytes_ = 0;
  timespec modified_{};
};

}  // namespace sharpi
