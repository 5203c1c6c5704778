// Prepares one head of one token for attention, by one warp that holds it in shared memory: RMS
// norm, rotary embedding, Hadamard transform, and the store into the KV cache.
#pragma once
#include "hadamard.cuh"
#include "kv_cache.cuh"

namespace sharpi {

__device__ __forceinline__ void norm_head(float* row, const float* weight, int dim, float epsilon) {
  const int lane = threadIdx.x % kWarp;
  float sum = 0.f;
  for (int i = lane; i < dim; i += kWarp) sum += row[i] * row[i];
  const float inverse = 1.f / sqrtf(sum_lanes(sum) / dim + epsilon);
  for (int i = lane; i < dim; i += kWarp) row[i] *= inverse * weight[i];
  __syncwarp();
}

// Rotates the pairs (i, i + half), or (2i, 2i + 1), of a row; `half` angles. Which of two products
// is joined with their sum is said here, as a compiler may choose otherwise in another kernel.
__device__ __forceinline__ void rotate_head(float* row, const float* cosines, int half,
                                            int interleaved) {
  const float* sines = cosines + half;
  for (int i = threadIdx.x % kWarp; i < half; i += kWarp) {
    float& first = row[interleaved ? 2 * i : i];
    float& second = row[interleaved ? 2 * i + 1 : i + half];
    const float a = first, b = second;
    first = __fmaf_rn(a, cosines[i], -__fmul_rn(b, sines[i]));
    second = __fmaf_rn(b, cosines[i], __fmul_rn(a, sines[i]));
  }
  __syncwarp();
}

// Heads of one kind and size: queries, keys or values.
struct HeadGroup {
  float* x;             // (T, heads, dim)
  const float* weight;  // (dim,), or (heads, dim) with a stride of dim; null: no norm
  const float* angles;  // (T, 2, half); null: no rotary embedding
  uint8_t* pages;  // one layer's keys or values in the KV cache; null: the result goes back to x
  int heads, dim, weight_stride, half;
  float epsilon;
  int hadamard;  // block size of the transform; 0: none
  int kv_type;   // type of the pages, a KvNumber
};

// Loads a token's head into `row`, norms it, rotates it and transforms it.
__device__ __forceinline__ void prepare_head(const HeadGroup& group, int token, int head,
                                             float* row, int interleaved) {
  const int lane = threadIdx.x % kWarp, dim = group.dim;
  const float* source = group.x + (size_t(token) * group.heads + head) * dim;
  for (int i = lane; i < dim; i += kWarp) row[i] = source[i];
  __syncwarp();
  if (group.weight)
    norm_head(row, group.weight + size_t(head) * group.weight_stride, dim, group.epsilon);
  if (group.angles)
    rotate_head(row, group.angles + size_t(token) * 2 * group.half, group.half, interleaved);
  if (group.hadamard) {
    transform_row(row, dim, group.hadamard);
    __syncwarp();
  }
}

// Stores a prepared head at a position of the KV cache.
template <class Kv>
__device__ __forceinline__ void store_head(const HeadGroup& group, int head, const float* row,
                                           const int* page_table, int position) {
  const size_t at = kv_head_at<Kv>(page_table[position / kPage], group.heads, head, group.dim);
  Kv::store(group.pages + at, position % kPage, group.dim, row);
}

}  // namespace sharpi

// The parameters of a head group within a kernel's list, and the group made of them.
#define HEAD_GROUP(g)                                                                     \
  float *x_##g, const float *weight_##g, const float *angles_##g, uint8_t *pages_##g,     \
      int heads_##g, int dim_##g, int weight_stride_##g, int half_##g, float epsilon_##g, \
      int hadamard_##g, int kv_type_##g
#define AS_HEAD_GROUP(g)                                                                   \
  {x_##g,    weight_##g,  angles_##g,   pages_##g,  heads_##g, dim_##g, weight_stride_##g, \
   half_##g, epsilon_##g, hadamard_##g, kv_type_##g}
