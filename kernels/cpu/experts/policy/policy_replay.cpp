// The replays of policy_replay.h.
#include "policy_replay.h"

#include <algorithm>
#include <limits>

namespace sharpi {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// The distinct experts that each step uses in a layer, step after step.
struct Uses {
  std::vector<int32_t> experts;
  std::vector<size_t> begins;     // (steps + 1)
  std::vector<int64_t> next_use;  // (experts) the step that uses the expert again
};

Uses find_uses(const Trace& trace, int layer) {
  Uses uses;
  std::vector<int32_t> step;
  for (int64_t i = 0, token = 0; i < trace.num_steps; token += trace.sizes[i++]) {
    trace.gather(token, trace.sizes[i], layer, step);
    std::sort(step.begin(), step.end());
    step.erase(std::unique(step.begin(), step.end()), step.end());
    uses.begins.push_back(uses.experts.size());
    uses.experts.insert(uses.experts.end(), step.begin(), step.end());
  }
  uses.begins.push_back(uses.experts.size());
  return uses;
}

void find_next(Uses& uses, int num_experts) {
  std::vector<int64_t> soonest(num_experts, kNever);
  uses.next_use.resize(uses.experts.size());
  for (size_t step = uses.begins.size() - 1; step-- > 0;)
    for (size_t i = uses.begins[step]; i < uses.begins[step + 1]; i++) {
      uses.next_use[i] = soonest[uses.experts[i]];
      soonest[uses.experts[i]] = int64_t(step);
    }
}

LayerCounts optimum(const Trace& trace, int layer, int num_slots) {
  Uses uses = find_uses(trace, layer);
  find_next(uses, trace.num_experts);
  std::vector<int64_t> due(trace.num_experts, kNever);
  std::vector<uint8_t> is_missed(trace.num_experts);
  std::vector<int32_t> kept, missed;
  LayerCounts counts;
  for (int64_t step = 0; step < trace.num_steps; step++) {
    missed.clear();
    for (size_t i = uses.begins[step]; i < uses.begins[step + 1]; i++) {
      const int32_t e = uses.experts[i];
      due[e] = uses.next_use[i];
      if (std::find(kept.begin(), kept.end(), e) == kept.end()) missed.push_back(e);
    }
    const auto used = int64_t(uses.begins[step + 1] - uses.begins[step]);
    counts.accesses += used, counts.hits += used - int64_t(missed.size());
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
  std::vector<int32_t> batch;
  int64_t num_swaps = 0;
  policy.start(swaps);
  for (int64_t i = 0, token = 0; i < trace.num_steps; token += trace.sizes[i++]) {
    const int64_t tokens = trace.sizes[i];
    if (trace.starts[i]) policy.reset_sequence();
    for (int layer = 0; layer < trace.num_layers; layer++) {
      if (tokens == 1) {
        policy.use(layer, trace.route(token, layer), trace.k, swaps);
      } else {
        trace.gather(token, tokens, layer, batch);
        policy.use_batch(layer, batch.data(), int(tokens), trace.k, swaps);
      }
    }
    policy.end_token(swaps);
    num_swaps += int64_t(swaps.size());
    swaps.clear();
  }
  return num_swaps;
}

void replay_optimum(const Trace& trace, const int* slots, LayerCounts* counts) {
  for (int layer = 0; layer < trace.num_layers; layer++)
    counts[layer] = optimum(trace, layer, slots[layer]);
}

}  // namespace sharpi
