// What Python calls: opcodes to numbers, and the launch of a kernel.
#include <memory>

#include "machine.h"

namespace ptx {
bool decode(const std::string& name, Op& out);
}

namespace {

using namespace ptx;

std::vector<Op>& decoded() {
  static std::vector<Op> all;
  return all;
}

// A variable in shared memory; the gaps between them belong to nobody.
struct Variable {
  uint64_t offset, size;
};

struct Constant {
  uint64_t row, value;
};

// Rows of the special registers, each -1 where the kernel does not read it.
struct Specials {
  int32_t tid[3], ntid[3], ctaid[3], nctaid[3], lane, warp;
};

struct Request {
  uint32_t grid[3], block;
  int32_t num_rows, is_dependent;
  uint64_t shared_bytes, local_bytes, num_params, num_variables, num_constants, num_regions;
  const Ins* program;
  const uint8_t* params;
  const Variable* variables;
  const Constant* constants;
  const Region* regions;
  const Specials* specials;
  // Out.
  uint64_t executed;
  int32_t pc, thread;
  uint32_t at_block[3];
  char what[256];
};

void fill(Machine& m, int row, uint64_t value) {
  if (row < 0) return;
  for (int l = 0; l < m.lanes; l++) m.row(row)[l] = value;
}

void prepare(Machine& m, const Request& request) {
  m.lanes = int(request.block);
  m.registers.assign(size_t(request.num_rows) * request.block, 0x7fb1dead7fb1deadull);
  m.program = request.program, m.ops = decoded().data();
  m.params.assign(request.params, request.params + request.num_params);
  m.regions.assign(request.regions, request.regions + request.num_regions);
  m.local_bytes = request.local_bytes;
  const Specials& s = *request.specials;
  for (uint64_t n = 0; n < request.num_constants; n++)
    fill(m, int(request.constants[n].row), request.constants[n].value);
  for (int axis = 0; axis < 3; axis++) {
    fill(m, s.ntid[axis], axis ? 1 : request.block);
    fill(m, s.nctaid[axis], request.grid[axis]);
    fill(m, s.tid[axis], 0);
  }
  for (int l = 0; l < m.lanes; l++) {
    if (s.tid[0] >= 0) m.row(s.tid[0])[l] = uint64_t(l);
    if (s.lane >= 0) m.row(s.lane)[l] = uint64_t(l % kWarp);
    if (s.warp >= 0) m.row(s.warp)[l] = uint64_t(l / kWarp);
  }
}

void begin_block(Machine& m, const Request& request, const uint32_t (&index)[3]) {
  for (int axis = 0; axis < 3; axis++) fill(m, request.specials->ctaid[axis], index[axis]);
  const size_t lanes = request.block;
  m.pcs.assign(lanes, 0);
  m.states.assign(lanes, State::ready);
  m.has_begun.assign(lanes, !request.is_dependent);
  m.shared.assign(request.shared_bytes, 0xff);
  m.shared_bytes.assign(request.shared_bytes, SharedByte{});
  m.local.assign(request.local_bytes * lanes, 0xff);
  for (uint64_t n = 0; n < request.num_variables; n++)
    for (uint64_t at = 0; at < request.variables[n].size; at++)
      m.shared_bytes[request.variables[n].offset + at].exists = 1;
  m.epoch = 1;
  m.clock.assign((lanes + kWarp - 1) / kWarp, 1);
}

}  // namespace

extern "C" {

int32_t ptx_operation(const char* name) {
  Op op;
  if (!decode(name, op)) return -1;
  decoded().push_back(op);
  return int32_t(decoded().size() - 1);
}

void ptx_launch(Request* request) {
  const auto machine = std::make_unique<Machine>();
  uint32_t at[3] = {0, 0, 0};
  try {
    prepare(*machine, *request);
    for (at[2] = 0; at[2] < request->grid[2]; at[2]++)
      for (at[1] = 0; at[1] < request->grid[1]; at[1]++)
        for (at[0] = 0; at[0] < request->grid[0]; at[0]++) {
          begin_block(*machine, *request, at);
          run_block(*machine);
        }
  } catch (const Failure& failure) {
    snprintf(request->what, sizeof request->what, "%s", failure.text.c_str());
    request->pc = failure.pc, request->thread = failure.lane;
    memcpy(request->at_block, at, sizeof at);
  }
  request->executed = machine->executed;
}
}
