// Computes residual + scale * the sum over a token's experts of weight * (down h + bias), in
// ascending order of expert ids: a block takes some rows of a token, for all its experts. With one
// token, the block that ends last can norm the row.
#include "common/launch_order.cuh"
#include "expert_items.cuh"
#include "rows/norm_row.cuh"

namespace sharpi {

// Types with groups of 16 have no registers left for a second loop.
template <class Type>
using DownDot = OneTokenDot<Type, kInDown, Type::kWords == 8>;

constexpr int kMaxPartials = 2048;  // rows of a block times experts of a token

// Computes each expert's product: partials[rank][row of the tile]; a tile has 2^tile_bits rows.
template <class Dot>
__device__ __forceinline__ void down_products(const Activations& hidden, const int* ids,
                                              const StackedMatrix& stacked, int used, int rows,
                                              int tile_bits, int lane_bits, float* partials) {
  constexpr int kRows = Dot::kRowsAtOnce;
  static_assert(kRows == 1 || kRows == 2);
  const LaneGroup at = lane_group(lane_bits);
  const int step_bits = tile_bits - (kRows - 1), total = used << step_bits;
  for (int base = 0; base < total; base += at.groups) {
    const int index = min(base + at.group, total - 1);  // keeps the lanes of a warp together
    const int rank = index >> step_bits, first = (index & ((1 << step_bits) - 1)) * kRows;
    const int item = int(blockIdx.y) * used + rank;
    const ExpertMatrix matrix = matrix_of(stacked, expert_of(ids, item), rows);
    const int row = (int(blockIdx.x) << tile_bits) + first;
    const uint8_t* pointers[kRows];
#pragma unroll
    for (int r = 0; r < kRows; r++)
      pointers[r] = matrix.weights + min(row + r, rows - 1) * Dot::row_bytes(hidden.columns);
    const int token[1] = {item};
    float sum[1][kRows];
    dot_rows<Dot>(at, pointers, hidden, token, 1, sum);
    if (at.lane != 0 || base + at.group >= total) continue;
#pragma unroll
    for (int r = 0; r < kRows; r++)
      partials[(rank << tile_bits) + first + r] =
          item_value(matrix, nullptr, item, min(row + r, rows - 1), sum[0][r]);
  }
}

template <class Dot>
__device__ __forceinline__ void experts_down(const Activations& hidden, const int* ids,
                                             const float* weights, const StackedMatrix& stacked,
                                             const Merged& merged, int used, int rows,
                                             int tile_bits, int lane_bits) {
  __shared__ float partials[kMaxPartials];
  __shared__ int order[kMaxUsed];
  const int token = int(blockIdx.y);
  order_experts(ids ? ids + token * used : nullptr, used, order);
  down_products<Dot>(hidden, ids, stacked, used, rows, tile_bits, lane_bits, partials);
  __syncthreads();
  const int row = (int(blockIdx.x) << tile_bits) + int(threadIdx.x);
  if (threadIdx.x >> tile_bits != 0 || row >= rows) return;
  float sum = 0.f;
  for (int i = 0; i < used; i++) {
    const int rank = order[i];
    const float weight = weights ? weights[token * used + rank] : 1.f;
    sum = __fmaf_rn(weight, partials[(rank << tile_bits) + threadIdx.x], sum);
  }
  merged.store(size_t(token) * rows + row, sum);
}

}  // namespace sharpi

#define DOWN(entry, Dot)                                                                        \
  KERNEL __launch_bounds__(256, sharpi::Dot::kBlocks) entry(                                    \
      const uint8_t* hidden, const int* ids, const float* weights, const uint64_t* addresses,   \
      const float* bias, const float* factors, const float* residual, float* out, float scale,  \
      int used, int columns, int rows, int planes, int tile_bits, int lane_bits, NORM_TAIL) {   \
    sharpi::wait_for_last_launch();                                                             \
    sharpi::experts_down<sharpi::Dot>({hidden, columns, planes}, ids, weights,                  \
                                      {addresses, bias, factors}, {residual, scale, out}, used, \
                                      rows, tile_bits, lane_bits);                              \
    sharpi::end_with_norm(AS_NORM_TAIL, out, rows);                                             \
  }
#define DOWN_QUANTISED(Type, type)                 \
  DOWN(experts_down_##type, DownDot<sharpi::Type>) \
  DOWN(experts_down_exact_##type, ExactDot<sharpi::Type>)
#define DOWN_FLOAT(Type, type) DOWN(experts_down_exact_##type, FloatDot<sharpi::Type>)

QUANTISED_TYPES(DOWN_QUANTISED)
FLOAT_TYPES(DOWN_FLOAT)
