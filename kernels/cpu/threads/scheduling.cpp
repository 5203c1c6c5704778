#include "scheduling.h"

#include <cerrno>
#include <cstdint>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace sharpi {

#if defined(__linux__) && defined(SYS_sched_setattr)

namespace {

constexpr uint64_t kSlice = 100'000;  // nanoseconds, the shortest that Linux accepts

struct Attributes {  // `struct sched_attr` of linux/sched/types.h, first version
  uint32_t size = sizeof(Attributes), policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime = kSlice, deadline = 0, period = 0;
};

}  // namespace

void prefer_short_slices() {
  static thread_local bool is_done = false;
  if (is_done) return;
  is_done = true;
  Attributes now;
  if (syscall(SYS_sched_getattr, 0, &now, sizeof now, 0) || now.policy != 0)
    return;  // another policy was chosen on purpose
  now.size = sizeof now, now.flags = 0, now.runtime = kSlice, now.deadline = now.period = 0;
  syscall(SYS_sched_setattr, 0, &now, 0);
}

#else

void prefer_short_slices() {}

#endif

void give_way() { std::this_thread::yield(); }

#if defined(__linux__)
int current_core() { return sched_getcpu(); }

bool leave_cores(const int* cores, int count) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed)) return false;
  cpu_set_t others = allowed;
  for (int i = 0; i < count; i++)
    if (cores[i] >= 0 && cores[i] < CPU_SETSIZE) CPU_CLR(cores[i], &others);
  if (!CPU_COUNT(&others) || sched_setaffinity(0, sizeof others, &others)) return false;
  sched_setaffinity(0, sizeof allowed, &allowed);
  return true;
}

bool stay_on(const std::vector<int>& cores) {
  if (cores.empty()) return true;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores)
    if (core >= 0 && core < CPU_SETSIZE) CPU_SET(core, &set);
  return !sched_setaffinity(0, sizeof set, &set);
}

int place_pages(const void* data, size_t bytes, int node) {
  constexpr int kPreferred = 1, kMove = 2, kMostNodes = 1024;  // of linux/mempolicy.h
  if (node < 0 || node >= kMostNodes) return EINVAL;
  uint64_t nodes[kMostNodes / 64] = {};
  nodes[node / 64] = uint64_t(1) << node % 64;
  constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ of Linux 5.14
  const uintptr_t page = uintptr_t(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = uintptr_t(data) / page * page;
  const uintptr_t end = (uintptr_t(data) + bytes + page - 1) / page * page;
  madvise(reinterpret_cast<void*>(begin), end - begin, kPopulateRead);
  return syscall(SYS_mbind, begin, end - begin, kPreferred, nodes, kMostNodes, kMove) ? errno : 0;
}
#else
int current_core() { return kNoCore; }
bool leave_cores(const int*, int) { return false; }
bool stay_on(const std::vector<int>&) { return true; }
int place_pages(const void*, size_t, int) { return ENOSYS; }
#endif

}  // namespace sharpi
