// Computes W x + bias of many items: a block takes some rows of an expert's matrix and goes through
// that expert's items eight at a time. `share` is the number of items that share a row of x.
#include "expert_product.cuh"

namespace sharpi {

constexpr int kAtOnce = 8;

// `offsets` and `list` come from group_routes, or packed from pack_routes; without a list, items
// are rows of x.
template <class Dot>
__device__ __forceinline__ void experts_grouped_product(const Activations& x, const int* offsets,
                                                        const int* list,
                                                        const StackedMatrix& stacked,
                                                        const float* weights, float* out, int share,
                                                        int rows, int lane_bits, bool is_packed) {
  const int expert = int(blockIdx.y), end = offsets[expert + 1];
  const ExpertMatrix matrix = matrix_of(stacked, expert, rows);
  if (!matrix.weights) return;  // the CPU computes this expert
  for (int first = offsets[expert]; first < end; first += kAtOnce) {
    const Items items = {list, first, min(kAtOnce, end - first), share, is_packed};
    expert_product<Dot, kAtOnce>(matrix, weights, x, items, lane_bits, out);
  }
}

}  // namespace sharpi

#define PRODUCT(entry, Dot)                                                                       \
  KERNEL __launch_bounds__(256, sharpi::Dot::kManyBlocks)                                         \
      entry(const uint8_t* x, const int* offsets, const int* items, const uint64_t* addresses,    \
            const float* bias, const float* factors, const float* weights, float* out, int share, \
            int columns, int rows, int planes, int lane_bits, int is_packed) {                    \
    sharpi::experts_grouped_product<sharpi::Dot>({x, columns, planes}, offsets, items,            \
                                                 {addresses, bias, factors}, weights, out, share, \
                                                 rows, lane_bits, is_packed != 0);                \
  }
#define PRODUCT_QUANTISED(Type, type)                            \
  PRODUCT(experts_grouped_product_##type, Int8Dot<sharpi::Type>) \
  PRODUCT(experts_grouped_product_exact_##type, ExactDot<sharpi::Type>)
#define PRODUCT_FLOAT(Type, type) \
  PRODUCT(experts_grouped_product_exact_##type, FloatDot<sharpi::Type>)

QUANTISED_TYPES(PRODUCT_QUANTISED)
FLOAT_TYPES(PRODUCT_FLOAT)
