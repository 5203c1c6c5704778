// Computes what experts_grouped_product does for F16 and BF16 weights, by activations in f16 on
// tensor cores: a block takes 64 rows of an expert's matrix and 32 of its items at a time.
#include "expert_half_tile.cuh"

namespace sharpi {

// Without a list, items are rows of x.
template <class Type>
__device__ __forceinline__ void experts_f16_product(const F16Rows& x, const int* offsets,
                                                    const int* list, const StackedMatrix& stacked,
                                                    const float* weights, float* out, int share,
                                                    int rows, bool is_packed) {
  __shared__ HalfTileMemory memory;
  const int expert = int(blockIdx.y);
  const ExpertMatrix matrix = matrix_of(stacked, expert, rows);
  if (!matrix.weights) return;  // the CPU computes this expert
  const uint8_t* own[2];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int row = int(blockIdx.x) * kTileRows + i * kRowsAtATime + HalfTileSource::row();
    own[i] = matrix.weights + min(row, rows - 1) * x.row_bytes();
  }
  each_tile(offsets, list, expert, share, is_packed, [&](const Items& items) {
    WarpSums sums;
    multiply_items<Type>(memory, own, x, items, sums);
    store_products(matrix, weights, items, sums, out);
  });
}

}  // namespace sharpi

#define PRODUCT(Type, type)                                                                     \
  KERNEL __launch_bounds__(256, 3) experts_f16_product_##type(                                  \
      const uint8_t* x, const float* scales, const int* offsets, const int* items,              \
      const uint64_t* addresses, const float* bias, const float* factors, const float* weights, \
      float* out, int share, int columns, int rows, int is_packed) {                            \
    sharpi::experts_f16_product<sharpi::Type>({x, scales, columns}, offsets, items,             \
                                              {addresses, bias, factors}, weights, out, share,  \
                                              rows, is_packed != 0);                            \
  }

PRODUCT(F16, f16)
PRODUCT(BF16, bf16)
