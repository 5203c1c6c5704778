// Addresses, loads and stores. Every access is checked for bounds, alignment and races.
#include "machine.h"

namespace ptx {
namespace {

std::string hex(uint64_t value) {
  char text[32];
  snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

std::string sized(size_t size, const char* what) { return std::to_string(size) + "-byte " + what; }

}  // namespace

uint8_t* Machine::at(Space space, uint64_t address, size_t size, Access access, int lane) {
  if (space == Space::generic && address >= kSharedWindow) {
    space = address >= kLocalWindow ? Space::local : Space::shared;
    address -= space == Space::local ? kLocalWindow : kSharedWindow;
  }
  if (address % size) fail(sized(size, "access") + " at " + hex(address) + " is misaligned", lane);
  if (space == Space::shared) return shared_at(address, size, access, lane);
  if (space == Space::generic || space == Space::global)
    return global_at(address, size, access, lane);
  auto& bytes = space == Space::param ? params : local;
  const size_t limit = space == Space::param ? params.size() : local_bytes;
  if (address > limit || limit - address < size)
    fail(sized(size, "access") + " at " + hex(address) + " leaves local memory or parameters",
         lane);
  if (space == Space::param && access != Access::read) fail("a parameter is written", lane);
  return bytes.data() + address + (space == Space::local ? local_bytes * size_t(lane) : 0);
}

uint8_t* Machine::global_at(uint64_t address, size_t size, Access access, int lane) {
  const bool writes = access != Access::read;
  const Region* found = nullptr;
  for (size_t n = 0; n < regions.size() && !found; n++) {
    const size_t index = (last_region + n) % regions.size();
    const Region& region = regions[index];
    if (address < region.begin || address + size > region.end) continue;
    if (writes && !region.writable) continue;
    found = &region;
    last_region = index;
  }
  if (!found)
    fail(sized(size, writes ? "write" : "read") + " at " + hex(address) + " is in no argument" +
             (writes ? " that the launch writes" : ""),
         lane);
  if (!has_begun[lane] && found->argument != -2)
    fail(sized(size, "access") + " before earlier launches have ended", lane);
  return reinterpret_cast<uint8_t*>(address);
}

uint8_t* Machine::shared_at(uint64_t address, size_t size, Access access, int lane) {
  if (address > shared.size() || shared.size() - address < size)
    fail(sized(size, "access") + " at " + hex(address) + " leaves shared memory", lane);
  for (size_t n = 0; n < size; n++) note(shared_bytes[address + n], address + n, access, lane);
  return shared.data() + address;
}

// Two lanes race for a byte if one writes it and neither a barrier of the block nor, within a warp,
// one of the warp lies between.
void Machine::note(SharedByte& byte, uint64_t address, Access access, int lane) {
  const auto fault = [&](const std::string& what) {
    fail(what + " of shared memory at " + hex(address), lane);
  };
  const int warp = lane / kWarp;
  const auto apart = [&](int other, uint32_t at_epoch, uint32_t at_clock) {
    if (other == lane) return true;
    return other / kWarp == warp ? at_clock < clock[warp] : at_epoch < epoch;
  };
  if (!byte.exists) fault("access outside every variable");
  if (!byte.written && access != Access::write) fault("read before it is written");
  if (access != Access::both && byte.written &&
      !apart(byte.writer, byte.write_epoch, byte.write_clock))
    fault("race with a write of thread " + std::to_string(byte.writer));
  if (access == Access::write && byte.has_reader) {
    const bool fresh = byte.read_epoch == epoch;
    const bool raced = byte.many_warps ? fresh
                       : byte.many_readers && byte.reader / kWarp == warp
                           ? byte.read_clock == clock[warp]
                           : !apart(byte.reader, byte.read_epoch, byte.read_clock);
    if (raced) fault("race with a read of thread " + std::to_string(byte.reader));
  }
  if (access != Access::read) {
    byte.written = 1, byte.writer = uint16_t(lane);
    byte.write_epoch = epoch, byte.write_clock = clock[warp];
    if (access == Access::write) byte.has_reader = 0;
    return;
  }
  const bool same_epoch = byte.has_reader && byte.read_epoch == epoch;
  byte.many_warps = same_epoch && (byte.many_warps || byte.reader / kWarp != warp);
  byte.many_readers = same_epoch && byte.read_clock == clock[warp] && byte.reader / kWarp == warp &&
                      (byte.many_readers || byte.reader != lane);
  byte.has_reader = 1, byte.reader = uint16_t(lane);
  byte.read_epoch = epoch, byte.read_clock = clock[warp];
}

namespace {

// Operands: the registers, then a row with the base and an offset.
void load(Machine& m, const Op& op, const Ins& i) {
  const int n = op.vector, bytes = bytes_of(op.type());
  uint64_t* base = m.row(i.a[n]);
  m.each([&](int l) {
    const uint64_t address = base[l] + uint64_t(int64_t(i.a[n + 1]));
    const uint8_t* from = m.at(op.space, address, size_t(bytes) * n, Machine::Access::read, l);
    for (int e = 0; e < n; e++) {
      uint64_t word = 0;
      memcpy(&word, from + e * bytes, size_t(bytes));
      const int unused = 64 - 8 * bytes;
      m.row(i.a[e])[l] = is_signed(op.type()) ? uint64_t(int64_t(word << unused) >> unused) : word;
    }
  });
}

void store(Machine& m, const Op& op, const Ins& i) {
  const int n = op.vector, bytes = bytes_of(op.type());
  uint64_t* base = m.row(i.a[0]);
  m.each([&](int l) {
    const uint64_t address = base[l] + uint64_t(int64_t(i.a[1]));
    uint8_t* to = m.at(op.space, address, size_t(bytes) * n, Machine::Access::write, l);
    for (int e = 0; e < n; e++) memcpy(to + e * bytes, &m.row(i.a[2 + e])[l], size_t(bytes));
  });
}

uint64_t window(Space space) {
  return space == Space::shared ? kSharedWindow : space == Space::local ? kLocalWindow : 0;
}

void to_generic(Machine& m, const Op& op, const Ins& i) {
  uint64_t *d = m.row(i.a[0]), *a = m.row(i.a[1]);
  m.each([&](int l) { d[l] = a[l] + window(op.space); });
}

void from_generic(Machine& m, const Op& op, const Ins& i) {
  uint64_t *d = m.row(i.a[0]), *a = m.row(i.a[1]);
  m.each([&](int l) { d[l] = a[l] - window(op.space); });
}

bool takes_modifiers(const Op& op) {
  return only(op, {"global",
                   "shared",
                   "local",
                   "param",
                   "nc",
                   "volatile",
                   "relaxed",
                   "acquire",
                   "release",
                   "weak",
                   "cta",
                   "gpu",
                   "sys",
                   "ca",
                   "cg",
                   "cs",
                   "cv",
                   "lu",
                   "wb",
                   "wt",
                   "v2",
                   "v4",
                   "L1::evict_first",
                   "L1::no_allocate",
                   "L2::64B",
                   "L2::128B",
                   "L2::256B"});
}

}  // namespace

bool decode_memory(Op& op) {
  const std::string& name = op.parts[0];
  if (op.types.size() != 1) return false;
  if (name == "cvta" && bytes_of(op.type()) == 8 &&
      only(op, {"to", "global", "shared", "local", "param"})) {
    if (op.space == Space::param) return false;
    op.run = op.has("to") ? from_generic : to_generic;
  }
  if (name == "ld" && takes_modifiers(op)) op.run = load;
  if (name == "st" && takes_modifiers(op)) op.run = store;
  return op.run != nullptr;
}

}  // namespace ptx
