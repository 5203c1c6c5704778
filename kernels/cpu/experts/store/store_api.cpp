// The C surface of the expert store. Nothing here throws; failures come back as null or a negative
// number.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <system_error>

#include "expert_store.h"
#include "runtime/layouts.h"

#ifndef SHARPI_API
#define SHARPI_API extern "C" __attribute__((visibility("default")))
#endif

using namespace sharpi;

namespace {

// The same fields as in sharpi/experts/native/store_abi.py.
struct PieceParams {
  uint64_t offset, bytes;
  int32_t file, reserved;
};
struct LayerParams {
  int32_t num_experts, num_slots;
  PieceParams pieces[kPieces];
};
struct StoreParams {
  const char* const* files;
  const LayerParams* layers;
  int32_t num_files, num_layers, num_staging, reads_in_flight;
  int32_t direct, reserved;
  int64_t max_prefetch_bytes;
};
struct StoreTotals {
  int64_t memory_bytes, dropped_prefetches, failed_prefetches, failed_reads, prefetched_bytes;
  int64_t is_direct;
};

const std::string kLayouts =
    SHARPI_LAYOUT(PieceParams, offset, bytes, file, reserved) +
    SHARPI_LAYOUT(LayerParams, num_experts, num_slots, pieces) +
    SHARPI_LAYOUT(StoreParams, files, layers, num_files, num_layers, num_staging, reads_in_flight,
                  direct, reserved, max_prefetch_bytes);

LayerLayout read_layer(const LayerParams& p) {
  LayerLayout layout{p.num_experts, p.num_slots, {}};
  for (int i = 0; i < kPieces; i++)
    layout.pieces[i] = {p.pieces[i].file, p.pieces[i].offset, p.pieces[i].bytes};
  return layout;
}

StoreSettings read(const StoreParams& p) {
  StoreSettings s;
  s.reader.files.assign(p.files, p.files + p.num_files);
  s.reader.direct = p.direct != 0;
  s.reader.reads_in_flight = p.reads_in_flight;
  s.reader.max_prefetch_bytes = size_t(p.max_prefetch_bytes);
  for (int i = 0; i < p.num_layers; i++) s.layers.push_back(read_layer(p.layers[i]));
  s.num_staging = p.num_staging;
  return s;
}

ExpertStore& store(void* handle) { return *static_cast<ExpertStore*>(handle); }

// Returns 0, or -1 when memory is short.
template <class Action>
int guarded(Action action) {
  try {
    action();
  } catch (const std::exception&) {
    return -1;
  }
  return 0;
}

}  // namespace

// Creates a store. Returns null with an empty `fault` for a struct of another size, or with the
// system's message where the system refuses something.
SHARPI_API void* sharpi_store_create(const StoreParams* params, size_t bytes, void* policy,
                                     char* fault, size_t fault_bytes) {
  *fault = 0;
  if (bytes != sizeof(StoreParams)) return nullptr;
  try {
    return new ExpertStore(read(*params), *static_cast<SlotPolicy*>(policy));
  } catch (const std::bad_alloc&) {
    snprintf(fault, fault_bytes, "no memory for the slots of experts");
  } catch (const std::system_error& error) {
    snprintf(fault, fault_bytes, "%s", error.what());
  }
  return nullptr;
}
SHARPI_API void sharpi_store_destroy(void* handle) { delete static_cast<ExpertStore*>(handle); }

SHARPI_API int sharpi_store_start(void* handle) {
  return guarded([&] { store(handle).start(); });
}
SHARPI_API int sharpi_store_acquire(void* handle, int layer, const int32_t* routes, int tokens,
                                    int k) {
  return guarded([&] {
    store(handle).acquire(layer, routes, tokens, k, tokens > 1,
                          tokens > 1 ? Phase::Prompt : Phase::Decode);
  });
}
// Waits for an expert. Returns 0, or -1 where it cannot be read.
SHARPI_API int sharpi_store_wait(void* handle, int layer, int expert) {
  return store(handle).wait(layer, expert) ? 0 : -1;
}
SHARPI_API int sharpi_store_is_ready(void* handle, int layer, int expert) {
  return store(handle).is_ready(layer, expert);
}
// Releases one expert, or all of the layer if `expert` is negative.
SHARPI_API int sharpi_store_release(void* handle, int layer, int expert) {
  return guarded([&] {
    if (expert < 0) store(handle).release(layer);
    else store(handle).release(layer, expert);
  });
}
SHARPI_API int sharpi_store_prefetch(void* handle, int layer, const int32_t* experts, int count) {
  return guarded([&] {
    std::vector<int32_t> begun;
    store(handle).prefetch(layer, experts, count, begun);
  });
}
SHARPI_API int sharpi_store_holds(void* handle, int layer, int expert) {
  return store(handle).holds(layer, expert);
}
// Gives the slot of `leaves` to `enters`, whose bytes are `pieces`. Returns 1 where that was done.
SHARPI_API int sharpi_store_exchange(void* handle, int layer, int leaves, int enters,
                                     const uint8_t* const* pieces) {
  return store(handle).exchange(layer, leaves, enters, pieces);
}
// Gives each layer this many slots, (layers), or fewer.
SHARPI_API int sharpi_store_resize(void* handle, const int32_t* slots) {
  return guarded([&] { store(handle).resize(slots); });
}
// Writes how many slots each layer has, (layers).
SHARPI_API void sharpi_store_slots(void* handle, int32_t* slots) {
  for (int layer = 0; layer < store(handle).num_layers(); layer++)
    slots[layer] = store(handle).num_slots(layer);
}
SHARPI_API void sharpi_store_set_learning(void* handle, int learns) {
  store(handle).set_learning(learns != 0);
}
SHARPI_API void sharpi_store_set_prefetching(void* handle, int prefetches) {
  store(handle).set_prefetching(prefetches != 0);
}
SHARPI_API int sharpi_store_end_token(void* handle) {
  return guarded([&] { store(handle).end_token(); });
}
SHARPI_API void sharpi_store_reset_sequence(void* handle) { store(handle).reset_sequence(); }

SHARPI_API int sharpi_store_max_group(void* handle) { return store(handle).max_group(); }
// Returns the address of an array of addresses, (experts), which is valid while the store exists.
SHARPI_API const void* sharpi_store_table(void* handle, int layer, int piece) {
  return store(handle).table(layer, piece);
}
// Writes the counts of every layer by phase, `counts` (layers, 2), what was read apart from them,
// `reads` (layers), the counts before a warm pin, and the totals.
SHARPI_API void sharpi_store_counts(void* handle, StoreCounts* counts, LayerReads* reads,
                                    HitCounts* before_pin, StoreTotals* totals) {
  const ExpertStore& s = store(handle);
  for (int layer = 0; layer < s.num_layers(); layer++) {
    for (int phase = 0; phase < kPhases; phase++) *counts++ = s.counts(layer, Phase(phase));
    reads[layer] = s.reads(layer);
  }
  *before_pin = s.before_pin();
  const ReaderCounts read = s.reader_counts();
  *totals = {int64_t(s.memory_bytes()), read.dropped_prefetches, read.failed_prefetches,
             read.failed_reads,         read.prefetched_bytes,   s.is_direct()};
}
// Writes how often each expert was used, `uses` (layers, num_experts): layers have at most so many.
SHARPI_API void sharpi_store_uses(void* handle, int64_t* uses, int num_experts) {
  for (int layer = 0; layer < store(handle).num_layers(); layer++)
    store(handle).uses(layer, uses + size_t(layer) * num_experts);
}
// Writes a sentence about the last read that failed; empty if none did.
SHARPI_API void sharpi_store_last_fault(void* handle, char* text, size_t bytes) {
  snprintf(text, bytes, "%s", store(handle).last_fault().c_str());
}

SHARPI_API const char* sharpi_store_layouts() { return kLayouts.c_str(); }
