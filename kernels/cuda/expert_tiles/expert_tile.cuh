// Tiles of the items of one expert, up to 32 at a time.
#pragma once
#include "experts/expert_items.cuh"
#include "quant/tile_position.cuh"

namespace sharpi {

// Calls `compute(items)` for each tile of an expert's items that this block takes: the grid's z
// shares them.
template <class Compute>
__device__ __forceinline__ void each_tile(const int* offsets, const int* list, int expert,
                                          int share, bool is_packed, Compute compute) {
  const int end = offsets[expert + 1];
  int first = offsets[expert] + int(blockIdx.z) * kTileItems;
  for (; first < end; first += int(gridDim.z) * kTileItems)
    compute(Items{list, first, min(kTileItems, end - first), share, is_packed});
}

// Stores the products of 64 rows, from row 64 * blockIdx.x on, with the items of a tile.
__device__ __forceinline__ void store_products(const ExpertMatrix& matrix, const float* weights,
                                               const Items& items, const WarpSums& sums,
                                               float* out) {
  const TilePosition at = TilePosition::here();
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const int index = at.item(i / 4, i % 4);
    const int row = int(blockIdx.x) * kTileRows + at.row(i % 4);
    if (index >= items.count || row >= matrix.rows) continue;
    out[size_t(items.result_row(index)) * matrix.rows + row] =
        item_value(matrix, weights, items.item(index), row, sums.sum[i / 4][i % 4]);
  }
}

}  // namespace sharpi
