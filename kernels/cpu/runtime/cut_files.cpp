// Survives files that are cut short, or become unreadable, while they are mapped: reading such a
// page raises SIGBUS, which would end the process. The handler puts pages of zeros in the place and
// counts; whoever runs a model asks for the count and throws away what was computed.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#define SHARPI_API extern "C" __attribute__((visibility("default")))

namespace {

constexpr int MAX_RANGES = 256;
constexpr int PROTECTION = PROT_READ | PROT_WRITE;
constexpr int PLACE = MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS;

struct Range {
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};
};

// Read by the handler, and written by one thread while no model runs.
Range ranges[MAX_RANGES];
std::atomic<int> num_ranges{0};
std::atomic<int64_t> num_faults{0};
uintptr_t page_bytes = 4096;
struct sigaction previous;

// Returns the end of the guarded file that has an address; for others, the end of its page.
uintptr_t end_of(uintptr_t page) {
  const int count = num_ranges.load(std::memory_order_acquire);
  for (int i = 0; i < count; i++) {
    const uintptr_t end = ranges[i].end.load(std::memory_order_relaxed);
    if (ranges[i].begin.load(std::memory_order_relaxed) <= page && page < end) return end;
  }
  return page + page_bytes;
}

// Several threads may put zeros in one place; it does not matter which one comes last.
void on_bus_error(int, siginfo_t* info, void*) {
  if (info->si_code == BUS_ADRERR) {
    const uintptr_t page = reinterpret_cast<uintptr_t>(info->si_addr) & ~(page_bytes - 1);
    void* place = reinterpret_cast<void*>(page);
    if (mmap(place, end_of(page) - page, PROTECTION, PLACE, -1, 0) != MAP_FAILED) {
      num_faults.fetch_add(1);
      return;
    }
  }
  sigaction(SIGBUS, &previous, nullptr);  // the same access faults again, as without this handler
}

}  // namespace

// Installs the handler for the whole process; returns 0, or -1 if the system refuses.
SHARPI_API int sharpi_survive_cut_files() {
  page_bytes = uintptr_t(sysconf(_SC_PAGESIZE));
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  struct sigaction before;
  if (sigaction(SIGBUS, nullptr, &before) != 0) return -1;
  if (before.sa_sigaction == on_bus_error) return 0;
  previous = before;
  return sigaction(SIGBUS, &action, nullptr);
}

// Guards a mapped file: after the first fault in it, all that follows in it reads as zeros. Returns
// -1 if there are too many; their pages are replaced one by one.
SHARPI_API int sharpi_guard_file(const void* begin, size_t bytes) {
  const int count = num_ranges.load();
  if (count == MAX_RANGES) return -1;
  const uintptr_t first = reinterpret_cast<uintptr_t>(begin);
  ranges[count].begin.store(first & ~(page_bytes - 1));
  ranges[count].end.store((first + bytes + page_bytes - 1) & ~(page_bytes - 1));
  num_ranges.store(count + 1, std::memory_order_release);
  return 0;
}

// Forgets all guarded files; call it before they are unmapped.
SHARPI_API void sharpi_forget_files() { num_ranges.store(0); }

// Returns how many faults were survived since the process began.
SHARPI_API int64_t sharpi_file_faults() { return num_faults.load(std::memory_order_relaxed); }
