// Multiplies rows of quantised weights by the items of a tile, whose activations are quantised to 8
// bits.
#pragma once
#include "expert_tile.cuh"
#include "quant/tile.cuh"

namespace sharpi {

// Computes the sums of 64 rows, of which `row` is this thread's, with the items of a tile.
template <class Type>
__device__ __forceinline__ void multiply_items(TileMemory<Type>& memory, const uint8_t* row,
                                               const Activations& x, const Items& items,
                                               int lane_bits, WarpSums& sums) {
  const int item = int(threadIdx.x) / (kTileThreads / kTileItems);
  const TileSource from = {row, x, items.row(item < items.count ? item : 0)};
  const UnitOrder order = unit_order(UnitLayout<Type>::units(x.columns), lane_bits);
  const bool has_items = TilePosition::here().first_item < items.count;
  multiply_tile(memory, from, order, has_items, sums);
}

}  // namespace sharpi
