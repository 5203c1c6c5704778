// Computes W x + bias of each item with its expert's matrix: used where gate and up have different
// quant types, or where there is only up.
#include "expert_product.cuh"

namespace sharpi {

template <class Type>
using OneDot = OneTokenDot<Type, kInProduct>;

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

#define PRODUCT(entry, Dot)                                                                     \
  KERNEL __launch_bounds__(256, 2)                                                              \
      entry(const uint8_t* x, const int* ids, const uint64_t* addresses, const float* bias,     \
            const float* factors, const float* weights, float* out, int used, int columns,      \
            int rows, int planes, int lane_bits) {                                              \
    sharpi::experts_product<sharpi::Dot>({x, columns, planes}, ids, {addresses, bias, factors}, \
                                         weights, out, used, rows, lane_bits);                  \
  }
#define PRODUCT_QUANTISED(Type, type)                   \
  PRODUCT(experts_product_##type, OneDot<sharpi::Type>) \
  PRODUCT(experts_product_exact_##type, ExactDot<sharpi::Type>)
#define PRODUCT_FLOAT(Type, type) PRODUCT(experts_product_exact_##type, FloatDot<sharpi::Type>)

QUANTISED_TYPES(PRODUCT_QUANTISED)
FLOAT_TYPES(PRODUCT_FLOAT)
