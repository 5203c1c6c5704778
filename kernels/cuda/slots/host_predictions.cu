// Tells the host which experts are predicted for a layer but not on the GPU, so that it reads them
// early. One warp.
#include "predicted_experts.cuh"

// ids (tokens, used): the predicted experts, best first, or -1; addresses (experts,): 0 for those
// that are not on the GPU. predicted: their number, the layer, and then the experts, up to 32.
KERNEL __launch_bounds__(32) host_predictions(const int* ids, const uint64_t* addresses,
                                              int* predicted, int tokens, int used, int layer) {
  using namespace sharpi;
  const int lane = threadIdx.x, id = predicted_of(ids, tokens, used);
  const bool is_missed = id >= 0 && addresses[id] == 0;
  const unsigned missed = __ballot_sync(kFullWarp, is_missed);
  if (is_missed) predicted[2 + __popc(missed & ((1u << lane) - 1))] = id;
  if (lane == 0) predicted[0] = __popc(missed), predicted[1] = layer;
}
