// The C surface of the slot policies. Nothing here throws; failures come back as null or a negative
// number.
#include <cstring>
#include <new>

#include "policy.h"
#include "policy_replay.h"
#include "runtime/layouts.h"

#ifndef SHARPI_API
#define SHARPI_API extern "C" __attribute__((visibility("default")))
#endif

using namespace sharpi;

namespace {

// The same fields as NativeSettings in sharpi/experts/native/native_policy.py.
struct PolicyParams {
  int32_t kind, num_layers, num_experts, experts_per_token;
  int32_t admission, warm_pin;
  int64_t warm_pin_after;
  float load_budget;
  int32_t moving_slots;
  const int32_t* slots;       // (layers)
  const int32_t* num_pinned;  // (layers)
  const int32_t* pinned;      // the layers' ids one after the other
  const int32_t* num_warm;    // (layers)
  const int32_t* warm;        // as pinned
};

const std::string kLayouts =
    SHARPI_LAYOUT(PolicyParams, kind, num_layers, num_experts, experts_per_token, admission,
                  warm_pin, warm_pin_after, load_budget, moving_slots, slots, num_pinned, pinned,
                  num_warm, warm) +
    SHARPI_LAYOUT(Trace, routes, sizes, starts, num_steps, num_layers, num_experts, k);

std::vector<std::vector<int32_t>> split(const int32_t* ids, const int32_t* counts, int num_layers) {
  std::vector<std::vector<int32_t>> layers;
  for (int layer = 0; layer < num_layers; ids += counts[layer++])
    layers.emplace_back(ids, ids + counts[layer]);
  return layers;
}

PolicySettings read(const PolicyParams& p) {
  PolicySettings s;
  s.kind = PolicyKind(p.kind);
  s.num_layers = p.num_layers, s.num_experts = p.num_experts,
  s.experts_per_token = p.experts_per_token;
  s.slots.assign(p.slots, p.slots + p.num_layers);
  s.pinned = split(p.pinned, p.num_pinned, p.num_layers);
  s.warm = split(p.warm, p.num_warm, p.num_layers);
  s.admission = p.admission != 0, s.moving_slots = p.moving_slots != 0;
  s.load_budget = p.load_budget;
  s.warm_pin = p.warm_pin, s.warm_pin_after = p.warm_pin_after;
  return s;
}

// Copies the swaps to `out` and returns their number; those that do not fit are lost.
int copy(const std::vector<Swap>& swaps, Swap* out, int capacity) {
  if (int(swaps.size()) > capacity) return -1;
  if (!swaps.empty()) memcpy(out, swaps.data(), swaps.size() * sizeof(Swap));
  return int(swaps.size());
}

SlotPolicy& policy(void* handle) { return *static_cast<SlotPolicy*>(handle); }

}  // namespace

// Creates a policy. Returns null for a struct of another size, an unknown kind, or when memory is
// short.
SHARPI_API void* sharpi_policy_create(const PolicyParams* params, size_t bytes) {
  if (bytes != sizeof(PolicyParams)) return nullptr;
  try {
    return make_policy(read(*params)).release();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
SHARPI_API void sharpi_policy_destroy(void* handle) { delete static_cast<SlotPolicy*>(handle); }

// The next five return the number of swaps written to `out`, or -1 when there were more than
// `capacity`.
SHARPI_API int sharpi_policy_start(void* handle, Swap* out, int capacity) {
  std::vector<Swap> swaps;
  policy(handle).start(swaps);
  return copy(swaps, out, capacity);
}
SHARPI_API int sharpi_policy_use(void* handle, int layer, const int32_t* experts, int count,
                                 Swap* out, int capacity) {
  std::vector<Swap> swaps;
  policy(handle).use(layer, experts, count, swaps);
  return copy(swaps, out, capacity);
}
SHARPI_API int sharpi_policy_use_batch(void* handle, int layer, const int32_t* routes, int tokens,
                                       int k, Swap* out, int capacity) {
  std::vector<Swap> swaps;
  policy(handle).use_batch(layer, routes, tokens, k, swaps);
  return copy(swaps, out, capacity);
}
SHARPI_API int sharpi_policy_resize(void* handle, int layer, int num_slots, Swap* out,
                                    int capacity) {
  std::vector<Swap> swaps;
  policy(handle).resize(layer, num_slots, swaps);
  return copy(swaps, out, capacity);
}
SHARPI_API int sharpi_policy_exchange(void* handle, int layer, int leaves, int enters) {
  return policy(handle).exchange(layer, leaves, enters);
}
SHARPI_API int sharpi_policy_end_token(void* handle, Swap* out, int capacity) {
  std::vector<Swap> swaps;
  policy(handle).end_token(swaps);
  return copy(swaps, out, capacity);
}

SHARPI_API void sharpi_policy_set_prefetching(void* handle, int prefetches) {
  policy(handle).set_prefetching(prefetches != 0);
}

SHARPI_API void sharpi_policy_set_learning(void* handle, int learns) {
  policy(handle).set_learning(learns != 0);
}

SHARPI_API void sharpi_policy_reset_sequence(void* handle) { policy(handle).reset_sequence(); }

// Writes the state of all experts; `resident`, `pinned` and `accesses` are (layers, experts) each.
SHARPI_API void sharpi_policy_experts(void* handle, uint8_t* resident, uint8_t* pinned,
                                      int64_t* accesses) {
  const PolicySettings& s = policy(handle).settings();
  for (int layer = 0, i = 0; layer < s.num_layers; layer++)
    for (int e = 0; e < s.num_experts; e++, i++) {
      resident[i] = policy(handle).resident(layer, e);
      pinned[i] = policy(handle).pinned(layer, e);
      accesses[i] = policy(handle).access_count(layer, e);
    }
}
// Writes `counts` (layers), and the accesses and hits before the warm pin to `before_pin`.
SHARPI_API void sharpi_policy_counts(void* handle, LayerCounts* counts, int64_t* before_pin) {
  for (int layer = 0; layer < policy(handle).settings().num_layers; layer++)
    counts[layer] = policy(handle).counts(layer);
  before_pin[0] = policy(handle).accesses_before_pin();
  before_pin[1] = policy(handle).hits_before_pin();
}

// Replays a trace. Returns the number of swaps, or -1 when memory is short.
SHARPI_API int64_t sharpi_policy_replay(void* handle, const Trace* trace) {
  try {
    return replay(policy(handle), *trace);
  } catch (const std::bad_alloc&) {
    return -1;
  }
}
// Computes Belady's optimum; `counts` is (layers). Returns 0, or -1 when memory is short.
SHARPI_API int sharpi_optimum_replay(const Trace* trace, const int32_t* slots,
                                     LayerCounts* counts) {
  try {
    replay_optimum(*trace, slots, counts);
  } catch (const std::bad_alloc&) {
    return -1;
  }
  return 0;
}

SHARPI_API const char* sharpi_policy_layouts() { return kLayouts.c_str(); }
