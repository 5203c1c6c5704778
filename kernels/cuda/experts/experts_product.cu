// Computes W x + bias of each item with its expert's matrix: used where gate and up have different
// quant types, where there is only up, and for heads, each with a matrix of its own.
#include "common/launch_order.cuh"
#include "expert_product.cuh"

namespace sharpi {

template <class Type>
using OneDot = OneTokenDot<Type, kInProduct>;

// Rounds the `count` values that a block has computed. The results of all items make one row of
// activations.
__device__ __forceinline__ void quantise_values(const float* out, int count, int rows,
                                                uint8_t* quantised, int planes) {
  const int first = int(blockIdx.y) * rows + int(blockIdx.x) * count;
  __syncthreads();
  for (int i = first + threadIdx.x; i < first + count; i += blockDim.x)
    quantise_32(out[i], quantised, 0, int(gridDim.y) * rows, planes, i / 32);
}

template <class Dot>
__device__ __forceinline__ void experts_product(const Activations& x, const int* ids,
                                                const StackedMatrix& stacked, const float* weights,
                                                float* out, int used, int rows, int lane_bits) {
  const int item = int(blockIdx.y);
  const ExpertMatrix matrix = matrix_of(stacked, expert_of(ids, item), rows);
  if (!matrix.weights) return;  // the CPU computes this item
  expert_product<Dot, 1>(matrix, weights, x, {nullptr, item, 1, used}, lane_bits, out);
}

}  // namespace sharpi

// quantised: activations of one row, the results of all items; or null. Then a block computes a
// multiple of 32 rows, and an item has whole blocks.
#define PRODUCT(entry, Dot)                                                                   \
  KERNEL __launch_bounds__(256, 2)                                                            \
      entry(const uint8_t* x, const int* ids, const uint64_t* addresses, const float* bias,   \
            const float* factors, const float* weights, float* out, int used, int columns,    \
            int rows, int planes, int lane_bits, uint8_t* quantised, int quantised_planes) {  \
    using namespace sharpi;                                                                   \
    wait_for_last_launch();                                                                   \
    experts_product<Dot>({x, columns, planes}, ids, {addresses, bias, factors}, weights, out, \
                         used, rows, lane_bits);                                              \
    if (quantised)                                                                            \
      quantise_values(out, int(blockDim.x >> lane_bits) * Dot::kRowsAtOnce, rows, quantised,  \
                      quantised_planes);                                                      \
  }
#define PRODUCT_QUANTISED(Type, type)                   \
  PRODUCT(experts_product_##type, OneDot<sharpi::Type>) \
  PRODUCT(experts_product_exact_##type, ExactDot<sharpi::Type>)
#define PRODUCT_FLOAT(Type, type) PRODUCT(experts_product_exact_##type, FloatDot<sharpi::Type>)

QUANTISED_TYPES(PRODUCT_QUANTISED)
FLOAT_TYPES(PRODUCT_FLOAT)
