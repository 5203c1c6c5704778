// The experts of a feed-forward and their items: item t * used + r is token t at its r-th expert.
#pragma once
#include "quant/dot.cuh"

namespace sharpi {

// Equal matrices of all experts, anywhere in memory. addresses (experts,): of each expert's matrix;
// bias (experts, rows), or null; factors (experts,): scales of the dequantised weights, or null.
struct StackedMatrix {
  const uint64_t* addresses;
  const float* bias;
  const float* factors;
};

// One expert's part of a stacked matrix.
struct ExpertMatrix {
  const uint8_t* weights;
  const float* bias;  // (rows,), or null
  int rows;
  float factor;
};

__device__ __forceinline__ ExpertMatrix matrix_of(const StackedMatrix& stacked, int expert,
                                                  int rows) {
  const float* bias = stacked.bias ? stacked.bias + size_t(expert) * rows : nullptr;
  const float factor = stacked.factors ? stacked.factors[expert] : 1.f;
  return {(const uint8_t*)stacked.addresses[expert], bias, rows, factor};
}

// Without ids, expert 0 computes everything.
__device__ __forceinline__ int expert_of(const int* ids, int item) { return ids ? ids[item] : 0; }

// Some items of one expert: list[first], list[first + 1], ..., or, without a list, first, first +
// 1, ... An item's activations are row item / share; `share` is `used`, or 1 if each item has its
// own row. Its result goes into row `result_row`: the item's number or, if items are packed, its
// index in the list.
struct Items {
  const int* list;
  int first;
  int count;
  int share;
  bool is_packed = false;

  __device__ __forceinline__ int item(int i) const { return list ? list[first + i] : first + i; }
  __device__ __forceinline__ int row(int i) const { return item(i) / share; }
  __device__ __forceinline__ int result_row(int i) const { return is_packed ? first + i : item(i); }
};

// Finds the activation rows of kMany items; those from `count` on repeat the first row.
template <int kMany>
__device__ __forceinline__ void rows_of_items(const Items& items, int (&rows)[kMany]) {
#pragma unroll
  for (int i = 0; i < kMany; i++) rows[i] = items.row(i < items.count ? i : 0);
}

// Returns weight * factor * product + bias; the weight is 1 where inputs are not weighted.
__device__ __forceinline__ float item_value(const ExpertMatrix& matrix, const float* weights,
                                            int item, int row, float product) {
  const float weight = weights ? __fmul_rn(weights[item], matrix.factor) : matrix.factor;
  return __fmaf_rn(weight, product, matrix.bias ? matrix.bias[row] : 0.f);
}

// Sorts a token's experts: order[i] is the rank of the expert with the i-th lowest id; null ids
// mean a single expert. All threads of a block call it, and a barrier follows; `used` is at most
// kMaxUsed.
constexpr int kMaxUsed = 32;
__device__ __forceinline__ void order_experts(const int* ids, int used, int* order) {
  for (int rank = int(threadIdx.x); rank < used; rank += int(blockDim.x)) {
    const int id = ids ? ids[rank] : 0;
    int position = 0;
    for (int other = 0; other < used; other++) {
      const int other_id = ids ? ids[other] : 0;
      position += other_id < id || (other_id == id && other < rank);
    }
    order[position] = rank;
  }
}

// Writes residual + scale * sum for a token's sum over its experts.
struct Merged {
  const float* residual;  // (tokens, rows), or null
  float scale;
  float* out;  // (tokens, rows)

  __device__ __forceinline__ void store(size_t at, float sum) const {
    out[at] = residual ? __fmaf_rn(scale, sum, residual[at]) : __fmul_rn(scale, sum);
  }
};

}  // namespace sharpi
