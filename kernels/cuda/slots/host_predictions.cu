// Tells the host which experts are predicted for a layer but not on the GPU, so that it reads them
// early. One warp.
#include "predicted_experts.cuh"

// ids (tokens, used): the predicted experts, best first, or -1; addresses (experts,): 0 for those
// that are not on the GPU. predicted: their number, the layer, and then the experts, up to 32.
KERNEL __launch_bounds__(32) host_predictions(const int* ids, const uint64_t* addresses,
                                              int* predicted, int tokens, int used, int layer) {
  using namespace sharpi;
  const int lane = threadIdx.x, id = predicted_of(ids, tokens, used);
  const bool is_away = id >= 0 && addresses[id] == 0;
  const unsigned away = __ballot_sync(kFullWarp, is_away);
  if (is_away) predicted[2 + __popc(away & ((1u << lane) - 1))] = id;
  if (lane == 0) predicted[0] = __popc(away), predicted[1] = layer;
}
