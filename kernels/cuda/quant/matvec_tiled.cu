// Computes the same as matvec for many tokens, with the same bits, on tensor cores: a block takes
// 64 rows of a matrix and 32 tokens. Activations have one plane.
#include "matvec_part.cuh"
#include "tile.cuh"

namespace sharpi {

constexpr int kTileRowBits = 6;

template <class Type>
__device__ __forceinline__ void matvec_tiled(const Activations& x, const Part& a, const Part& b,
                                             const Part& c, const Added& added, int tokens,
                                             int lane_bits) {
  __shared__ TileMemory<Type> memory;
  int block = int(blockIdx.x);
  const Part part = part_of(a, b, c, kTileRowBits, block);
  const int first = block * kTileRows, own = first + int(threadIdx.x) % kTileRows;
  const int begin = int(blockIdx.y) * kTileItems, count = min(kTileItems, tokens - begin);
  const int item = int(threadIdx.x) / (kTileThreads / kTileItems);
  const uint8_t* row =
      part.weights + size_t(min(own, part.rows - 1)) * UnitLayout<Type>::row_bytes(x.columns);
  const TileSource from = {row, x, begin + min(item, count - 1)};
  const UnitOrder order = unit_order(UnitLayout<Type>::units(x.columns), lane_bits);
  const TilePosition at = TilePosition::here();
  WarpSums sums;
  multiply_tile(memory, from, order, at.first_item < count, sums);
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const int token = at.item(i / 4, i % 4), r = first + at.row(i % 4);
    if (token < count && r < part.rows)
      store(part, added, begin + token, r, sums.sum[i / 4][i % 4]);
  }
}

}  // namespace sharpi

#define MATVEC_TILED(Type, type)                                                                 \
  KERNEL __launch_bounds__(256, 2) matvec_tiled_##type(                                          \
      const uint8_t* x, const uint8_t* weights_a, const float* bias_a, float* out_a, int rows_a, \
      float factor_a, const uint8_t* weights_b, const float* bias_b, float* out_b, int rows_b,   \
      float factor_b, const uint8_t* weights_c, const float* bias_c, float* out_c, int rows_c,   \
      float factor_c, const float* residual, float scale, int tokens, int columns,               \
      int lane_bits) {                                                                           \
    sharpi::matvec_tiled<sharpi::Type>(                                                          \
        {x, columns, 1}, {weights_a, bias_a, out_a, rows_a, factor_a},                           \
        {weights_b, bias_b, out_b, rows_b, factor_b},                                            \
        {weights_c, bias_c, out_c, rows_c, factor_c}, {residual, scale}, tokens, lane_bits);     \
  }

QUANTISED_TYPES(MATVEC_TILED)
