// Computes what experts_grouped_product does, with the same bits, on tensor cores: a block takes 64
// rows of an expert's matrix and 32 of its items at a time.
#include "expert_int8_tile.cuh"

namespace sharpi {

// Without a list, items are rows of x.
template <class Type>
__device__ __forceinline__ void experts_tiled_product(const Activations& x, const int* offsets,
                                                      const int* list, const StackedMatrix& stacked,
                                                      const float* weights, float* out, int share,
                                                      int rows, int lane_bits, bool is_packed) {
  __shared__ TileMemory<Type> memory;
  const int expert = int(blockIdx.y);
  const ExpertMatrix matrix = matrix_of(stacked, expert, rows);
  if (!matrix.weights) return;  // the CPU computes this expert
  const int first = int(blockIdx.x) * kTileRows + int(threadIdx.x) % kTileRows;
  const uint8_t* row =
      matrix.weights + min(first, rows - 1) * UnitLayout<Type>::row_bytes(x.columns);
  each_tile(offsets, list, expert, share, is_packed, [&](const Items& items) {
    WarpSums sums;
    multiply_items(memory, row, x, items, lane_bits, sums);
    store_products(matrix, weights, items, sums, out);
  });
}

}  // namespace sharpi

#define PRODUCT(Type, type)                                                                      \
  KERNEL __launch_bounds__(256, 2) experts_tiled_product_##type(                                 \
      const uint8_t* x, const int* offsets, const int* items, const uint64_t* addresses,         \
      const float* bias, const float* factors, const float* weights, float* out, int share,      \
      int columns, int rows, int lane_bits, int is_packed) {                                     \
    sharpi::experts_tiled_product<sharpi::Type>({x, columns, 1}, offsets, items,                 \
                                                {addresses, bias, factors}, weights, out, share, \
                                                rows, lane_bits, is_packed != 0);                \
  }

QUANTISED_TYPES(PRODUCT)
