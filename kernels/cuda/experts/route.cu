// The router's choice: the scores of all experts, the best `used` of them, and their weights. One
// warp per token.
#include "common/launch_order.cuh"
#include "route.cuh"

// logits: (T, experts); ids, weights: (T, used), best first; Router. route_time: the time at which
// the first token's are known, or null. Blocks of one warp; grid (T).
KERNEL __launch_bounds__(32)
    route(const float* logits, int* ids, float* weights, int64_t* route_time, ROUTER) {
  sharpi::wait_for_last_launch();
  using namespace sharpi;
  const int token = blockIdx.x;
  route_row(AS_ROUTER, logits + size_t(token) * experts, ids + size_t(token) * used,
            weights + size_t(token) * used);
  if (route_time && token + threadIdx.x == 0) *route_time = nanoseconds();
}
