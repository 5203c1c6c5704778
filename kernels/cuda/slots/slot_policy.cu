// Decides about a token's experts in a layer: which have a slot, which get one, and where the
// others are read from. One block; its first warp decides.
#include "slot_decision.cuh"

// ids (num_before + 1, used): the experts of the step's tokens so far, of which this one is the
// last; see decide_token. The step has `num_tokens` tokens. One block of whole warps.
KERNEL __launch_bounds__(256, 1) slot_policy(const int* ids, int experts, int used, int num_before,
                                             int num_tokens, SLOT_DECISION) {
  using namespace sharpi;
  __shared__ DecisionMemory memory;
  copy_state(state, memory.words, experts);
  decide_token(AS_SLOT_DECISION, memory, ids, experts, used, {num_before, num_tokens});
}
