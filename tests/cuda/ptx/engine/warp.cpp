// Operations of a warp: shuffles, votes, barriers of lanes. All named lanes are there when one
// runs.
#include "machine.h"

namespace ptx {
namespace {

template <class Body>
void each_lane(int base, uint32_t lanes, Body body) {
  for (int lane = 0; lane < kWarp; lane++)
    if (lanes >> lane & 1) body(lane, base + lane);
}

// The lane that one takes from, and whether that is in range (PTX ISA, shfl.sync).
int source_lane(const Op& op, int lane, uint32_t b, uint32_t c, bool& in_range) {
  const int by = int(b & 31), clamp = int(c & 31), segment = int(c >> 8 & 31);
  const int last = (lane & segment) | (clamp & ~segment), first = lane & segment;
  int from;
  if (op.has("up")) {
    from = lane - by;
    in_range = from >= last;
  } else {
    from = op.has("down") ? lane + by : op.has("bfly") ? lane ^ by : first | (by & ~segment);
    in_range = from <= last;
  }
  return in_range ? from : lane;
}

// Operands: d, perhaps p, a, b, c, the lanes.
void shuffle(Machine& m, const Op& op, const Ins& i, int base, uint32_t lanes) {
  const bool tells = i.num == 6;
  const int32_t* in = i.a + (tells ? 2 : 1);
  uint32_t before[kWarp];
  each_lane(base, lanes, [&](int lane, int l) { before[lane] = uint32_t(m.row(in[0])[l]); });
  each_lane(base, lanes, [&](int lane, int l) {
    bool in_range = false;
    const uint32_t b = uint32_t(m.row(in[1])[l]), c = uint32_t(m.row(in[2])[l]);
    const int from = source_lane(op, lane, b, c, in_range);
    if (!(lanes >> from & 1))
      m.fail("takes from lane " + std::to_string(from) + ", which does not take part", l);
    m.row(i.a[0])[l] = before[from];
    if (tells) m.row(i.a[1])[l] = in_range;
  });
}

void vote(Machine& m, const Op& op, const Ins& i, int base, uint32_t lanes) {
  uint32_t ballot = 0;
  const uint32_t inverted = i.inverted >> 1 & 1;
  each_lane(base, lanes,
            [&](int lane, int l) { ballot |= ((m.row(i.a[1])[l] & 1) ^ inverted) << lane; });
  const bool all = ballot == lanes, any = ballot != 0;
  const uint32_t out = op.has("ballot") ? ballot
                       : op.has("all")  ? all
                       : op.has("any")  ? any
                                        : all || !any;
  each_lane(base, lanes, [&](int, int l) { m.row(i.a[0])[l] = out; });
}

void match_any(Machine& m, const Op& op, const Ins& i, int base, uint32_t lanes) {
  each_lane(base, lanes, [&](int, int l) {
    uint32_t same = 0;
    each_lane(base, lanes, [&](int lane, int other) {
      const uint64_t differs = m.row(i.a[1])[l] ^ m.row(i.a[1])[other];
      same |= uint32_t((bytes_of(op.type()) == 4 ? uint32_t(differs) : differs) == 0) << lane;
    });
    m.row(i.a[0])[l] = same;
  });
}

void reduce(Machine& m, const Op& op, const Ins& i, int base, uint32_t lanes) {
  bool first = true;
  int64_t out = 0;
  each_lane(base, lanes, [&](int, int l) {
    const uint64_t word = m.row(i.a[1])[l];
    const int64_t value = is_signed(op.type()) ? int64_t(int32_t(word)) : int64_t(uint32_t(word));
    if (first) out = value;
    else if (op.has("add")) out += value;
    else if (op.has("min")) out = out < value ? out : value;
    else if (op.has("max")) out = out > value ? out : value;
    else if (op.has("and")) out &= value;
    else if (op.has("or")) out |= value;
    else out ^= value;
    first = false;
  });
  each_lane(base, lanes, [&](int, int l) { m.row(i.a[0])[l] = uint32_t(out); });
}

void barrier(Machine& m, const Op&, const Ins&, int base, uint32_t) { m.clock[base / kWarp]++; }

bool is(const Op& op, const char* name, std::initializer_list<const char*> words) {
  return op.parts[0] == name && op.has("sync") && only(op, words);
}

}  // namespace

bool decode_warp(Op& op) {
  op.kind = Kind::warp;
  if (op.parts[0] == "bar" && op.has("warp") && only(op, {"warp", "sync"})) {
    op.warp_run = barrier, op.mask_operand = 0;
    return true;
  }
  if (op.types.size() != 1) return false;
  op.mask_operand = -2;  // the last
  const int bytes = bytes_of(op.type());
  if (is(op, "shfl", {"sync", "up", "down", "bfly", "idx"}) && bytes == 4) op.warp_run = shuffle;
  if (is(op, "vote", {"sync", "all", "any", "uni", "ballot"})) op.warp_run = vote;
  if (is(op, "match", {"any", "sync"}) && op.has("any")) op.warp_run = match_any;
  if (is(op, "redux", {"sync", "add", "min", "max", "and", "or", "xor"})) op.warp_run = reduce;
  return op.warp_run != nullptr;
}

}  // namespace ptx
