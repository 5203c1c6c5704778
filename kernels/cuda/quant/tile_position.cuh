// A block's tile, the products of 64 rows of weights with 32 items, and each thread's part of it.
#pragma once
#include "common/types.cuh"

namespace sharpi {

constexpr int kTileThreads = 256, kTileRows = 64, kTileItems = 32;
constexpr int kItemsOfWarp = 16;  // a warp computes 16 rows of as many items

// The 16 rows and 16 items that a warp computes: sum[f][i] is as tensor_cores.cuh says for items
// 8 * f... of the warp.
struct WarpSums {
  float sum[2][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < 8; i++) sum[i / 4][i % 4] = 0.f;
  }
};

// The position of a warp and a lane in a tile.
struct TilePosition {
  int first_row, first_item;  // of the warp

  static __device__ __forceinline__ TilePosition here() {
    const int warp = int(threadIdx.x) / kWarp;
    return {warp % 4 * 16, warp / 4 * kItemsOfWarp};
  }
  // The row and the item of sum[f][i].
  __device__ __forceinline__ int row(int i) const {
    return first_row + int(threadIdx.x) % kWarp / 4 + i / 2 * 8;
  }
  __device__ __forceinline__ int item(int f, int i) const {
    return first_item + 8 * f + int(threadIdx.x) % 4 * 2 + i % 2;
  }
};

}  // namespace sharpi
