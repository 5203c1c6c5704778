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

char dynamic_shared[kMaxSharedBytes] __attribute__((aligned(256)));
Cell dynamic_cells[kMaxSharedBytes];
std::vector<Cell> static_cells;

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

Region own_region(const void* begin, size_t num_bytes, Cell* cells) {
  return {uintptr_t(begin), uintptr_t(begin) + num_bytes, cells, kOwn, true};
}

void open_memory(const Request& request, const Module& module) {
  static_cells.resize(std::max(static_cells.size(), module.shared_bytes));
  regions.reset(request.regions, request.num_regions, module.begin);
  regions.add(own_region(dynamic_shared, request.shared_bytes, dynamic_cells));
  regions.add(own_region(module.shared, module.shared_bytes, static_cells.data()));
  regions.add(
      own_region(reinterpret_cast<void*>(module.begin), module.end - module.begin, nullptr));
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
  block.grid = {request->grid[0], request->grid[1], request->grid[2]};
  block.launch_began = emulator::tick();
  emulator::forget_arrivals();
  block.num_begun = 0;
  emulator::run_grid(*request, module);
}

void* emulator_dynamic_shared() { return emulator::dynamic_shared; }
