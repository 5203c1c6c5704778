// Replays of policy_replay.h.
#include "policy_replay.h"

#include <algorithm>
#include <limits>

namespace sharpi {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// When each expert of layer `layer` that a token uses is used again, (tokens, k).
std::vector<int64_t> next_uses(const Trace& trace, int layer) {
  std::vector<int64_t> next(size_t(trace.tokens) * trace.k), soonest(trace.num_experts, kNever);
  for (int64_t t = trace.tokens; t-- > 0;) {
    const int32_t* route = trace.route(t, layer);
    for (int i = 0; i < trace.k; i++) next[t * trace.k + i] = soonest[route[i]];
    for (int i = 0; i < trace.k; i++) soonest[route[i]] = t;
  }
  return next;
}

LayerCounts optimum(const Trace& trace, int layer, int num_slots) {
  const std::vector<int64_t> next = next_uses(trace, layer);
  std::vector<int64_t> due(trace.num_experts, kNever);
  std::vector<uint8_t> is_missed(trace.num_experts);
  std::vector<int32_t> kept, missed;
  LayerCounts counts;
  for (int64_t t = 0; t < trace.tokens; t++) {
    missed.clear();
    for (int i = 0; i < trace.k; i++) {
      const int32_t e = trace.route(t, layer)[i];
      due[e] = next[t * trace.k + i];
      if (std::find(kept.begin(), kept.end(), e) == kept.end()) missed.push_back(e);
    }
    counts.accesses += trace.k, counts.hits += trace.k - int64_t(missed.size());
    for (int32_t e : missed) is_missed[e] = 1, kept.push_back(e);
    while (int(kept.size()) > num_slots) {
      auto last =
          std::max_element(kept.begin(), kept.end(), [&](int a, int b) { return due[a] < due[b]; });
      is_missed[*last] = 0;
      kept.erase(last);
    }
    for (int32_t e : missed) counts.loads += is_missed[e], is_missed[e] = 0;
  }
  return counts;
}

}  // namespace

int64_t replay(SlotPolicy& policy, const Trace& trace) {
  std::vector<Swap> swaps;
  int64_t num_swaps = 0, token = 0;
  policy.start(swaps);
  for (int64_t i = 0; i < trace.num_lengths; i++) {
    policy.reset_sequence();
    for (const int64_t end = token + trace.lengths[i]; token < end; token++) {
      for (int layer = 0; layer < trace.num_layers; layer++)
        policy.use(layer, trace.route(token, layer), trace.k, swaps);
      policy.end_token(swaps);
      num_swaps += int64_t(swaps.size());
      swaps.clear();
    }
  }
  return num_swaps;
}

void replay_optimum(const Trace& trace, const int* slots, LayerCounts* counts) {
  for (int layer = 0; layer < trace.num_layers; layer++)
    counts[layer] = optimum(trace, layer, slots[layer]);
}

}  // namespace sharpi
