// Asks the loader for a library's segments.
#include "module.h"

#include <link.h>

#include <algorithm>
#include <unordered_map>

namespace emulator {
namespace {

struct Search {
  uintptr_t address;
  Module found;
};

int look(dl_phdr_info* info, size_t, void* data) {
  Search& search = *static_cast<Search*>(data);
  Module module{UINTPTR_MAX, 0, nullptr, 0};
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) & segment = info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_TLS) {
      module.shared = static_cast<char*>(info->dlpi_tls_data);
      module.shared_bytes = segment.p_memsz;
    }
    if (segment.p_type != PT_LOAD) continue;
    module.begin = std::min(module.begin, begin);
    module.end = std::max(module.end, begin + segment.p_memsz);
  }
  if (search.address < module.begin || search.address >= module.end) return 0;
  search.found = module;
  return 1;
}

}  // namespace

Module module_of(uintptr_t address) {
  // A thread's own, as its segment is; kernels' libraries are never unloaded.
  thread_local std::unordered_map<uintptr_t, Module> known;
  const auto [at, is_new] = known.try_emplace(address);
  if (is_new) {
    Search search{address, {}};
    dl_iterate_phdr(look, &search);
    at->second = search.found;
  }
  return at->second;
}

}  // namespace emulator
