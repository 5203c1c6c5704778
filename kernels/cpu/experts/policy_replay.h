// A whole trace through a policy in one call, and the best that any policy could do without
// prefetch.
#pragma once
#include "policy.h"

namespace sharpi {

// The routes of `tokens` decoded tokens, (tokens, layers, k); `lengths` are those of the texts they
// belong to.
struct Trace {
  const int32_t* routes;
  int64_t tokens;
  int num_layers, num_experts, k;
  const int64_t* lengths;
  int64_t num_lengths;
  const int32_t* route(int64_t token, int layer) const {
    return routes + (token * num_layers + layer) * k;
  }
};

// Returns every swap that was made.
int64_t replay(SlotPolicy& policy, const Trace& trace);

// Belady's optimum with bypass: each layer keeps the experts used again soonest, missed ones being
// free not to enter.
void replay_optimum(const Trace& trace, const int* slots, LayerCounts* counts);

}  // namespace sharpi
