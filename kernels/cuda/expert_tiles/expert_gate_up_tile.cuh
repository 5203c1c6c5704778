// The activated values of a tile whose first 32 rows are of an expert's gate, the others of its up.
#pragma once
#include "expert_tile.cuh"
#include "experts/expert_gate_up.cuh"

namespace sharpi {

constexpr int kValueStride = kTileRows + 4;  // so that a warp's stores fall into different banks

// The products of a tile, (items, rows): the gate's rows, then those of up.
typedef float TileValues[kTileItems][kValueStride];

__device__ __forceinline__ void put_sums(const WarpSums& sums, const Items& items,
                                         TileValues& values) {
  const TilePosition at = TilePosition::here();
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const int item = at.item(i / 4, i % 4);
    if (item < items.count) values[item][at.row(i % 4)] = sums.sum[i / 4][i % 4];
  }
}

// A warp takes an item, a lane one of the 32 rows.
__device__ __forceinline__ void store_items(const GateUp& halves, const Items& items,
                                            const TileValues& values, const Hidden& hidden) {
  const int lane = int(threadIdx.x) % kWarp;
  const int row = min(kWarp * int(blockIdx.x) + lane, hidden.rows - 1);
  for (int i = int(threadIdx.x) / kWarp; i < items.count; i += kTileThreads / kWarp) {
    const int item = items.item(i);
    const float gate = item_value(halves.gate, halves.weights, item, row, values[i][lane]);
    const float up = item_value(halves.up, halves.weights, item, row, values[i][kWarp + lane]);
    store_hidden(hidden, items.result_row(i), int(blockIdx.x), gated(hidden.kind, gate, up));
  }
}

}  // namespace sharpi
