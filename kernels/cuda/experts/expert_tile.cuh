// Tiles of the items of one expert, up to 32 at a time.
#pragma once
#include "expert_items.cuh"
#include "quant/tile.cuh"

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

// Computes the sums of 64 rows, of which `row` is this thread's, with the items of a tile.
template <class Type>
__device__ __forceinline__ void multiply_items(TileMemory<Type>& memory, const uint8_t* row,
                                               const Activations& x, const Items& items,
                                               int lane_bits, WarpSums& sums) {
  const int item = int(threadIdx.x) / (kTileThreads / kTileItems);
  const TileSource from = {row, x, items.row(item < items.count ? item : 0)};
  const UnitOrder order = unit_order(UnitPlace<Type>::units(x.columns), lane_bits);
  const bool has_items = TilePlace::here().first_item < items.count;
  multiply_tile(memory, from, order, has_items, sums);
}

}  // namespace sharpi
