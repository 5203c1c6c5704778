// Replays a whole trace through a policy in one call, and through the best policy possible without
// prefetch.
#pragma once
#include <vector>

#include "policy.h"

namespace sharpi {

// The routes of all tokens, (tokens, layers, k), in steps of `sizes` tokens: one token where it was
// decoded, more in a batch of a prompt. `starts`: 1 where a new text begins with a step.
struct Trace {
  const int32_t* routes;
  const int64_t* sizes;
  const uint8_t* starts;
  int64_t num_steps;
  int num_layers, num_experts, k;
  const int32_t* route(int64_t token, int layer) const {
    return routes + (token * num_layers + layer) * k;
  }
  // Returns a layer's routes of several tokens, (tokens, k), in `room`.
  void gather(int64_t token, int64_t tokens, int layer, std::vector<int32_t>& room) const {
    room.clear();
    for (int64_t t = token; t < token + tokens; t++)
      room.insert(room.end(), route(t, layer), route(t, layer) + k);
  }
};

// Replays the trace. Returns the number of swaps.
int64_t replay(SlotPolicy& policy, const Trace& trace);

// Computes Belady's optimum with bypass: each layer keeps the experts that are used again soonest,
// and a missed expert need not enter. A batch uses each of its experts once.
void replay_optimum(const Trace& trace, const int* slots, LayerCounts* counts);

}  // namespace sharpi
