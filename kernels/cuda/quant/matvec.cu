// Computes out = residual + scale * (factor * W x + bias) for one to three matrices of one quant
// type that share x.
//
// A group of lanes computes one row or two adjacent ones; blocks cover the matrices one after
// another, and the grid's y the tokens. With one token, the block that ends last can process the
// row further: norm it, or choose experts from it.
#include "common/launch_order.cuh"
#include "experts/route.cuh"
#include "matvec_part.cuh"
#include "rows/norm_row.cuh"

namespace sharpi {

// A choice of experts by a router's logits. done: a counter of blocks, null for no choice; `route`
// explains the others.
struct RouteTail {
  int* done;
  int* ids;
  float* weights;
  int64_t* route_time;
  Router router;
};

__device__ __forceinline__ void end_with_route(const RouteTail& tail, const float* logits) {
  if (!tail.done || !is_last_block(tail.done, int(gridDim.x)) || threadIdx.x >= kWarp) return;
  route_row(tail.router, logits, tail.ids, tail.weights);
  if (tail.route_time && threadIdx.x == 0) *tail.route_time = nanoseconds();
}

template <class Type>
using OneDot = OneTokenDot<Type, kInMatvec>;

template <class Dot, int kTokens>
__device__ __forceinline__ void matvec(const Activations& x, const Part& a, const Part& b,
                                       const Part& c, const Added& added, int tokens, int lane_bits,
                                       int tile_bits) {
  int block = int(blockIdx.x);
  const Part part = part_of(a, b, c, tile_bits, block);
  multiply_part<Dot, kTokens>(x, part, block, added, tokens, lane_bits);
}

}  // namespace sharpi

#define MATVEC(entry, Dot, kTokens, TAIL)                                                         \
  KERNEL __launch_bounds__(256, kTokens == 1 ? Dot::kBlocks : Dot::kManyBlocks)                   \
      entry(const uint8_t* x, const uint8_t* weights_a, const float* bias_a, float* out_a,        \
            int rows_a, float factor_a, const uint8_t* weights_b, const float* bias_b,            \
            float* out_b, int rows_b, float factor_b, const uint8_t* weights_c,                   \
            const float* bias_c, float* out_c, int rows_c, float factor_c, const float* residual, \
            float scale, int tokens, int columns, int planes, int lane_bits, int tile_bits,       \
            NORM_TAIL, int* route_done, int* ids, float* weights, int64_t* route_time, ROUTER) {  \
    sharpi::wait_for_last_launch();                                                               \
    sharpi::matvec<Dot, kTokens>({x, columns, planes},                                            \
                                 {weights_a, bias_a, out_a, rows_a, factor_a},                    \
                                 {weights_b, bias_b, out_b, rows_b, factor_b},                    \
                                 {weights_c, bias_c, out_c, rows_c, factor_c}, {residual, scale}, \
                                 tokens, lane_bits, tile_bits);                                   \
    TAIL                                                                                          \
  }
#define NORM_LAST sharpi::end_with_norm(AS_NORM_TAIL, out_a, rows_a);
#define ROUTE_LAST sharpi::end_with_route({route_done, ids, weights, route_time, AS_ROUTER}, out_a);
#define MATVEC_QUANTISED(Type, type)                                            \
  MATVEC(matvec_one_##type, sharpi::OneDot<sharpi::Type>, 1, NORM_LAST)         \
  MATVEC(matvec_##type, sharpi::Int8Dot<sharpi::Type>, 8, )                     \
  MATVEC(matvec_one_exact_##type, sharpi::ExactDot<sharpi::Type>, 1, NORM_LAST) \
  MATVEC(matvec_exact_##type, sharpi::ExactDot<sharpi::Type>, 8, )
#define MATVEC_FLOAT(Type, type)                                                           \
  MATVEC(matvec_one_exact_##type, sharpi::FloatDot<sharpi::Type>, 1, NORM_LAST ROUTE_LAST) \
  MATVEC(matvec_exact_##type, sharpi::FloatDot<sharpi::Type>, 8, )

QUANTISED_TYPES(MATVEC_QUANTISED)
FLOAT_TYPES(MATVEC_FLOAT)
