// Computes a router's logits for one token. The block that ends last chooses experts from them, and
// decides about the layer's slots: the work of matvec, route and slot_policy in one launch.
//
// All blocks reserve the shared memory and the registers of a decision. So this is not a part of
// matvec.cu, whose other products need far less.
#include "common/last_block.cuh"
#include "common/launch_order.cuh"
#include "experts/route.cuh"
#include "quant/matvec_part.cuh"
#include "slot_decision.cuh"

namespace sharpi {

// Copies the state while the first warp chooses experts: on the other warps, if there are any.
__device__ __forceinline__ void copy_beside_route(const int* state, int* words, int experts) {
  const int threads = max(kWarp, int(blockDim.x) - kWarp);
  const int thread = int(threadIdx.x) + threads - int(blockDim.x);
  if (thread >= 0) copy_state(state, words, experts, thread, threads);
}

// Called by the last block. logits (experts,).
__device__ __forceinline__ void route_and_decide(const Router& router, const float* logits,
                                                 int* ids, float* weights,
                                                 const SlotDecision& slots) {
  __shared__ DecisionMemory memory;
  copy_beside_route(slots.state, memory.words, router.experts);
  if (threadIdx.x < kWarp) route_row(router, logits, ids, weights);
  decide_token(slots, memory, ids, router.experts, router.used, {0, 1});
}

}  // namespace sharpi

// The router's matrix (rows, columns) and its logits (rows,): see Part; ids, weights (used,): see
// Router; done: a counter of blocks. Blocks of whole warps, up to 256 threads.
#define SLOT_ROUTE(Type, type)                                                                    \
  KERNEL __launch_bounds__(256, 1) slot_route_##type(                                             \
      const uint8_t* x, const uint8_t* matrix, const float* matrix_bias, float* logits, int rows, \
      float factor, const float* residual, float scale, int columns, int lane_bits, int* done,    \
      int* ids, float* weights, ROUTER, SLOT_DECISION) {                                          \
    using namespace sharpi;                                                                       \
    wait_for_last_launch();                                                                       \
    multiply_part<FloatDot<sharpi::Type>, 1>({x, columns, 0},                                     \
                                             {matrix, matrix_bias, logits, rows, factor},         \
                                             int(blockIdx.x), {residual, scale}, 1, lane_bits);   \
    if (is_last_block(done, int(gridDim.x)))                                                      \
      route_and_decide(AS_ROUTER, logits, ids, weights, AS_SLOT_DECISION);                        \
  }

FLOAT_TYPES(SLOT_ROUTE)
