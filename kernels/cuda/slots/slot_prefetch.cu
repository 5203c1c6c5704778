// Loads experts that the next layer will probably use into its early slots, if the bus is idle. One
// warp.
#include "predicted_experts.cuh"
#include "slot_state.cuh"

// state: of the next layer; ids (tokens, used): its predicted experts, best first, up to 32, then
// -1; now: the loads of the current layer, whose [1] tells if the bus is busy; loads: room for
// `most`, which is at most the number of early slots.
KERNEL __launch_bounds__(32)
    slot_prefetch(int* state, const int* ids, const int* now, int* loads, int experts, int tokens,
                  int used, int num_slots, int num_early, int most) {
  using namespace sharpi;
  const Slots s(state, experts);
  const Locations locations = {experts, num_slots, num_early, 0};
  const int lane = threadIdx.x, id = predicted_of(ids, tokens, used);
  const int num_predictions = __popc(__ballot_sync(kFullWarp, id >= 0));
  const bool is_idle = now[1] == 0;
  const bool wants = id >= 0 && is_idle && !s.resident(id);
  const unsigned wanted = __ballot_sync(kFullWarp, wants);
  const int nth = __popc(wanted & ((1u << lane) - 1)), num_loads = min(__popc(wanted), most);
  if (wants && nth < num_loads) {
    s.head->early[nth] = id;
    Loads{loads}.set(nth, id, locations.early_slot(nth), id);
  }
  s.head->predictions[lane] = id;
  if (lane != 0) return;
  s.head->counts[kDecode][kEarlyWasted] += s.head->num_early;
  s.head->counts[kDecode][kEarlyLoads] += num_loads;
  s.head->num_early = num_loads;
  s.head->num_predictions = num_predictions;
  s.head->has_predictions = 1;
  s.head->early_used = s.head->right = 0;
  loads[0] = loads[1] = num_loads;
}
