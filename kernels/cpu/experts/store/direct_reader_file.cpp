#include "direct_reader_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace sharpi {
namespace {

constexpr size_t kAlignment = 4096;

int open_file(const char* path, bool* direct) {
#ifdef O_DIRECT
  if (*direct) {
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (file >= 0 || errno != EINVAL) return file;
  }
#endif
  *direct = false;
  return open(path, O_RDONLY | O_CLOEXEC);
}

}  // namespace

DirectFile::DirectFile(const std::string& path, bool direct) : path_(path) {
  file_ = open_file(path.c_str(), &direct);
  if (file_ < 0) throw std::system_error(errno, std::generic_category(), path);
  is_direct_ = direct;
  struct stat status;
  if (fstat(file_, &status)) {
    close(file_);
    throw std::system_error(errno, std::generic_category(), path);
  }
  bytes_ = uint64_t(status.st_size), modified_ = status.st_mtim;
}

DirectFile::~DirectFile() { close(file_); }

int DirectFile::read(uint8_t* to, uint64_t offset, size_t bytes) {
  if (offset >= bytes_) return kFileChanged;
  const int fault = read_all(to, offset, bytes);
  if (!is_direct()) posix_fadvise(file_, off_t(offset), off_t(bytes), POSIX_FADV_DONTNEED);
  if (fault != kReadFine) return fault;
  return is_unchanged() ? kReadFine : kFileChanged;
}

int DirectFile::read_all(uint8_t* to, uint64_t offset, size_t bytes) {
  const size_t wanted = size_t(std::min<uint64_t>(bytes, bytes_ - offset));
  for (size_t done = 0; done < wanted;) {
    const ssize_t count = pread(file_, to + done, bytes - done, off_t(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EINVAL && is_direct()) {
      leave_direct();  // a device with larger blocks
      continue;
    }
    if (count < 0) return errno;
    const size_t reached = done + size_t(count);
    const size_t next = reached < wanted ? reached / kAlignment * kAlignment : reached;
    if (next == done) return kFileChanged;  // the file has become shorter
    done = next;
  }
  return kReadFine;
}

void DirectFile::leave_direct() {
#ifdef O_DIRECT
  fcntl(file_, F_SETFL, fcntl(file_, F_GETFL) & ~O_DIRECT);
#endif
  is_direct_ = false;
}

bool DirectFile::is_unchanged() const {
  struct stat now;
  return !fstat(file_, &now) && uint64_t(now.st_size) == bytes_ &&
         now.st_mtim.tv_sec == modified_.tv_sec && now.st_mtim.tv_nsec == modified_.tv_nsec;
}

std::string DirectFile::describe(int fault) const {
  if (fault == kFileChanged) return path_ + ": the file changed while it was in use";
  return path_ + ": cannot be read (" + std::generic_category().message(fault) + ")";
}

}  // namespace sharpi
