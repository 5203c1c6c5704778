// A launch: its limits, the memory it may touch, and its blocks one after another.
#include <algorithm>
#include <cstring>
#include <vector>

#include "accesses.h"
#include "block.h"
#include "fault.h"
#include "joined.h"
#include "module.h"

namespace emulator {
namespace {

// What every GPU has from sm_75 on.
constexpr unsigned kMaxGridX = 0x7fffffff, kMaxGridYZ = 65535, kMaxSharedBytes = 64 << 10;
constexpr int kUnset = 0xff;  // floats read as NaN, integers as -1

// The cells of shared memory, which begins at a multiple of a word.
class SharedCells {
 public:
  Cells of(const void* begin, size_t num_bytes) {
    const size_t first = uintptr_t(begin) % 4, bytes = first + num_bytes + 3;
    words_.resize(std::max(words_.size(), bytes / 4));
    bytes_.resize(std::max(bytes_.size(), bytes));
    return {uintptr_t(begin), words_.data(), bytes_.data()};
  }

 private:
  std::vector<Cell> words_, bytes_;
};

char dynamic_shared[kMaxSharedBytes] __attribute__((aligned(256)));
SharedCells dynamic_cells, static_cells;

void check_limits(const Request& request) {
  const unsigned* grid = request.grid;
  if (request.block == 0 || request.block > kMaxThreads)
    fault({"", 0}, "a block of %u threads", request.block);
  if (!grid[0] || !grid[1] || !grid[2] || grid[0] > kMaxGridX || grid[1] > kMaxGridYZ ||
      grid[2] > kMaxGridYZ)
    fault({"", 0}, "a grid of %u x %u x %u blocks", grid[0], grid[1], grid[2]);
  if (request.shared_bytes > kMaxSharedBytes)
    fault({"", 0}, "%u bytes of dynamic shared memory, over %u", request.shared_bytes,
          kMaxSharedBytes);
}

Region own_region(const void* begin, size_t num_bytes, Cells cells) {
  return {uintptr_t(begin), uintptr_t(begin) + num_bytes, cells, kOwn, true};
}

void open_memory(const Request& request, const Module& module) {
  regions.reset(request.regions, request.num_regions, module.begin);
  const Cells dynamic = dynamic_cells.of(dynamic_shared, request.shared_bytes);
  regions.add(own_region(dynamic_shared, request.shared_bytes, dynamic));
  const Cells own = static_cells.of(module.shared, module.shared_bytes);
  regions.add(own_region(module.shared, module.shared_bytes, own));
  regions.add(own_region(reinterpret_cast<void*>(module.begin), module.end - module.begin, {}));
  regions.sort();
}

void run_grid(const Request& request, const Module& module) {
  for (unsigned z = 0; z < request.grid[2]; z++)
    for (unsigned y = 0; y < request.grid[1]; y++)
      for (unsigned x = 0; x < request.grid[0] && !faulted(); x++) {
        memset(dynamic_shared, kUnset, request.shared_bytes);
        memset(module.shared, kUnset, module.shared_bytes);
        run_block({x, y, z}, request.order);
      }
}

}  // namespace
}  // namespace emulator

void emulator_run(const emulator::Request* request, emulator::Body body) {
  using emulator::block;
  emulator::expect_faults(request->fault);
  emulator::check_limits(*request);
  if (emulator::faulted()) return;
  const emulator::Module module = emulator::module_of(uintptr_t(body.call));
  if (request->check) emulator::open_memory(*request, module);
  emulator::check_accesses(request->check);
  block.body = body;
  block.num_threads = request->block;
  block.is_dependent = request->is_dependent;
  emulator_here.block_size = request->block;
  memcpy(emulator_here.grid, request->grid, sizeof request->grid);
  block.launch_began = emulator::tick();
  emulator::forget_arrivals();
  block.num_begun = 0;
  emulator::run_grid(*request, module);
}

void* emulator_dynamic_shared() { return emulator::dynamic_shared; }
