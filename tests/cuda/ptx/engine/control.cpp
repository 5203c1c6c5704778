// Branches, barriers of the block, and the order in which threads run.
//
// The lanes with the least place in the program run next, until they branch or meet others. So
// lanes that part meet again where their ways do.
#include <chrono>
#include <climits>

#include "machine.h"

namespace ptx {
namespace {

void nothing(Machine&, const Op&, const Ins&) {}

void begin(Machine& m, const Op&, const Ins&) {
  m.each([&](int l) { m.has_begun[l] = 1; });
}

// Nanoseconds, of %globaltimer and of the clocks alike.
void clock(Machine& m, const Op&, const Ins& i) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const uint64_t value = uint64_t(std::chrono::nanoseconds(now).count());
  m.each([&](int l) { m.row(i.a[0])[l] = value; });
}

void active_lanes(Machine& m, const Op&, const Ins& i) {
  std::vector<uint32_t> masks(m.clock.size(), 0);
  m.each([&](int l) { masks[l / kWarp] |= 1u << l % kWarp; });
  m.each([&](int l) { m.row(i.a[0])[l] = masks[l / kWarp]; });
}

// Where a lane waits: the instruction, its barrier and how many threads that one takes (0: all).
struct Wait {
  int pc = 0, barrier = 0, threads = 0;
};

struct Runner {
  Machine& m;
  std::vector<Wait> waits;
  std::vector<int> group;  // lanes of the run, whether their predicate holds or not

  explicit Runner(Machine& machine) : m(machine), waits(machine.lanes) {}

  bool alive(int lane) const { return lane < m.lanes && m.states[lane] != State::done; }

  void run() {
    while (gather()) advance();
  }

  // Takes the lanes with the least place; returns false when all have ended.
  bool gather() {
    int least = INT_MAX, first = -1;
    bool any = false;
    for (int l = 0; l < m.lanes; l++) {
      any |= m.states[l] != State::done;
      if (m.states[l] == State::ready && m.pcs[l] < least) least = m.pcs[l], first = l;
    }
    if (!any) return false;
    if (first < 0) stuck();
    group.clear();
    next = INT_MAX;
    for (int l = 0; l < m.lanes; l++) {
      const bool here = m.pcs[l] == least &&
                        (m.states[l] == State::ready || m.states[l] == State::at_warp_operation);
      if (here) {
        group.push_back(l);
        m.states[l] = State::ready;
      } else if (m.states[l] == State::ready || m.states[l] == State::at_warp_operation) {
        if (m.pcs[l] > least && m.pcs[l] < next) next = m.pcs[l];
      }
    }
    m.pc = least;
    return true;
  }

  [[noreturn]] void stuck() {
    for (int l = 0; l < m.lanes; l++) {
      if (m.states[l] == State::done) continue;
      m.pc = m.states[l] == State::at_barrier ? waits[l].pc : m.pcs[l];
      m.fail(m.states[l] == State::at_barrier ? "waits for threads that never come to this barrier"
                                              : "waits for lanes that never come here",
             l);
    }
    m.fail("no thread can run", 0);
  }

  void advance() {
    for (;;) {
      const Ins& i = m.program[m.pc];
      const Op& op = m.ops[i.op];
      m.executed++;
      filter(i);
      bool stays = true;
      if (!m.active.empty() || op.kind == Kind::warp) stays = step(op, i);
      if (!stays) return;
      m.pc++;
      if (m.pc >= next) break;
    }
    for (int l : group) m.pcs[l] = m.pc;
  }

  void filter(const Ins& i) {
    if (i.predicate < 0) {
      m.active = group;
      return;
    }
    m.active.clear();
    const uint64_t* p = m.row(i.predicate);
    for (int l : group)
      if ((p[l] & 1) != uint64_t(i.negated)) m.active.push_back(l);
  }

  // Returns false where lanes have parted or stopped: their places are set.
  bool step(const Op& op, const Ins& i) {
    switch (op.kind) {
      case Kind::plain: op.run(m, op, i); return true;
      case Kind::warp: return warp_operation(op, i);
      case Kind::branch: set_places(m.pc + 1, i.a[0]); return false;
      case Kind::end: end(); return false;
      case Kind::barrier: wait(op, i); return false;
      default: m.fail("the kernel traps", m.active[0]);
    }
  }

  void set_places(int others, int of_active) {
    for (int l : group) m.pcs[l] = others;
    for (int l : m.active) m.pcs[l] = of_active;
  }

  void end() {
    set_places(m.pc + 1, m.pc);
    for (int l : m.active) {
      if (!m.has_begun[l]) m.fail("the thread ends without having waited for earlier launches", l);
      m.states[l] = State::done;
    }
    release();
  }

  bool warp_operation(const Op& op, const Ins& i) {
    std::vector<uint32_t> here(m.clock.size(), 0);
    for (int l : m.active) here[l / kWarp] |= 1u << l % kWarp;
    std::vector<int> parked;
    for (size_t w = 0; w < here.size(); w++) warps(op, i, int(w) * kWarp, here[w], parked);
    if (parked.empty()) return true;
    for (int l : group) m.pcs[l] = m.pc + 1;
    for (int l : parked) m.pcs[l] = m.pc, m.states[l] = State::at_warp_operation;
    return false;
  }

  void warps(const Op& op, const Ins& i, int base, uint32_t here, std::vector<int>& parked) {
    while (here) {
      const int lane = __builtin_ctz(here);
      const uint32_t wanted = lanes_of(op, i, base, lane);
      uint32_t same = 0;
      for (int other = 0; other < kWarp; other++)
        if (here >> other & 1 && wanted >> other & 1 && lanes_of(op, i, base, other) == wanted)
          same |= 1u << other;
      if (same == wanted) op.warp_run(m, op, i, base, wanted);
      else
        for (int other = 0; other < kWarp; other++)
          if (same >> other & 1) parked.push_back(base + other);
      here &= ~same;
    }
  }

  // The lanes that must be there: those named that have not ended.
  uint32_t lanes_of(const Op& op, const Ins& i, int base, int lane) {
    uint32_t wanted = ~0u;
    if (op.mask_operand != -1)
      wanted =
          uint32_t(m.row(i.a[op.mask_operand == -2 ? i.num - 1 : op.mask_operand])[base + lane]);
    if (!(wanted >> lane & 1)) m.fail("the lane is not among those it names", base + lane);
    for (int other = 0; other < kWarp; other++)
      if (!alive(base + other)) {
        if (op.mask_operand == -1) m.fail("a lane of the warp has ended", base + lane);
        wanted &= ~(1u << other);
      }
    return wanted;
  }

  // Operands of bar.sync: the barrier, perhaps the number of threads; of bar.red a result before
  // and a predicate behind.
  void wait(const Op& op, const Ins& i) {
    const bool reduces = op.has("red");
    const int first = reduces ? 1 : 0, sources = i.num - (reduces ? 2 : 0);
    set_places(m.pc + 1, m.pc + 1);
    for (int l : m.active) {
      m.states[l] = State::at_barrier;
      waits[l].pc = m.pc;
      waits[l].barrier = int(m.row(i.a[first])[l]);
      waits[l].threads = sources > 1 ? int(m.row(i.a[first + 1])[l]) : 0;
    }
    release();
  }

  void release() {
    for (int barrier = 0; barrier < 16; barrier++) {
      std::vector<int> there;
      int num_alive = 0, threads = 0;
      for (int l = 0; l < m.lanes; l++) {
        num_alive += alive(l);
        if (m.states[l] != State::at_barrier || waits[l].barrier != barrier) continue;
        there.push_back(l);
        threads = waits[l].threads;
      }
      if (!there.empty() && int(there.size()) == (threads ? threads : num_alive)) pass(there);
    }
  }

  void pass(const std::vector<int>& there) {
    for (int l : there)
      if (waits[l].pc != waits[there[0]].pc && l / kWarp == (l - 1) / kWarp && l > 0 &&
          m.states[l - 1] == State::at_barrier && waits[l].pc != waits[l - 1].pc) {
        m.pc = waits[l].pc;
        m.fail("threads of a warp wait at different barriers", l);
      }
    reduce(there);
    for (int l : there) m.states[l] = State::ready;
    m.epoch++;
    for (auto& clock : m.clock) clock++;
  }

  void reduce(const std::vector<int>& there) {
    uint32_t count = 0;
    for (int l : there) {
      const Ins& i = m.program[waits[l].pc];
      const bool inverted = i.inverted >> (i.num - 1) & 1;
      if (m.ops[i.op].has("red")) count += ((m.row(i.a[i.num - 1])[l] & 1) != 0) != inverted;
    }
    for (int l : there) {
      const Ins& i = m.program[waits[l].pc];
      const Op& op = m.ops[i.op];
      if (op.has("red"))
        m.row(i.a[0])[l] = op.has("popc")  ? count
                           : op.has("and") ? count == there.size()
                                           : count > 0;
    }
  }

  int next = INT_MAX;
};

bool is_fence(const Op& op) {
  const std::string& name = op.parts[0];
  if (name == "membar") return only(op, {"gl", "cta", "sys"});
  return name == "fence" && only(op, {"sc", "acq_rel", "cta", "gpu", "sys"});
}

Kind ends(const Op& op) {
  const std::string& name = op.parts[0];
  if (name == "bra" && only(op, {"uni"})) return Kind::branch;
  if ((name == "ret" || name == "exit") && only(op, {"uni"})) return Kind::end;
  if ((name == "bar" || name == "barrier") && !op.has("warp") &&
      (op.has("sync") || op.has("red")) &&
      only(op, {"sync", "red", "cta", "aligned", "popc", "and", "or"}))
    return Kind::barrier;
  return name == "trap" ? Kind::trap : Kind::plain;
}

}  // namespace

bool decode_control(Op& op) {
  op.kind = ends(op);
  if (op.kind != Kind::plain) return true;
  if (is_fence(op) || op.name == "nanosleep.u32" || op.name == "griddepcontrol.launch_dependents")
    op.run = nothing;
  if (op.name == "griddepcontrol.wait") op.run = begin;
  if (op.name == "activemask.b32") op.run = active_lanes;
  if (op.name == "clock.u32" || op.name == "clock.u64") op.run = clock;  // the lowering's
  return op.run != nullptr;
}

void run_block(Machine& machine) { Runner(machine).run(); }

}  // namespace ptx
