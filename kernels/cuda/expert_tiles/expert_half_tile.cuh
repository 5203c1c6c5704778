// Multiplies rows of F16 or BF16 weights by the items of a tile, whose activations are in f16.
#pragma once
#include "expert_tile.cuh"
#include "quant/half_tile.cuh"

namespace sharpi {

// Activations (n, columns) in f16, of which row r is multiplied by scales[r] (see to_f16).
struct F16Rows {
  const uint8_t* memory;
  const float* scales;
  int columns;

  __device__ __forceinline__ size_t row_bytes() const { return 2 * size_t(columns); }
};

// Multiplies the sums by the scales of their items, powers of two.
__device__ __forceinline__ void scale_sums(const F16Rows& x, const Items& items, WarpSums& sums) {
  const TilePosition at = TilePosition::here();
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int item = at.item(i / 2, i % 2);
    const float scale = __ldg(x.scales + items.row(item < items.count ? item : 0));
    sums.sum[i / 2][i % 2] = __fmul_rn(sums.sum[i / 2][i % 2], scale);
    sums.sum[i / 2][i % 2 + 2] = __fmul_rn(sums.sum[i / 2][i % 2 + 2], scale);
  }
}

// Computes the products of 64 rows with the items of a tile; `rows` are this thread's.
template <class Type>
__device__ __forceinline__ void multiply_items(HalfTileMemory& memory,
                                               const uint8_t* const (&rows)[2], const F16Rows& x,
                                               const Items& items, WarpSums& sums) {
  const int item = HalfTileSource::row();
  const size_t first = items.row(item < items.count ? item : 0) * x.row_bytes();
  const HalfTileSource from = {{rows[0], rows[1]}, x.memory + first, x.columns};
  const bool has_items = TilePosition::here().first_item < items.count;
  multiply_half_tile<Type>(memory, from, has_items, sums);
  scale_sums(x, items, sums);
}

}  // namespace sharpi
