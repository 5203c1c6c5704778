// Prepares every head for attention: RMS norm, rotary embedding, and the store into the KV cache.
//
// A warp holds one head of one token in shared memory.
#include "kv_cache.cuh"

namespace sharpi {

constexpr int kHeadsEach = 4;  // heads of a block, one per warp

__device__ __forceinline__ void norm_head(float* row, const float* weight, int dim, float epsilon) {
  const int lane = threadIdx.x % kWarp;
  float sum = 0.f;
  for (int i = lane; i < dim; i += kWarp) sum += row[i] * row[i];
  const float inverse = 1.f / sqrtf(sum_lanes(sum) / dim + epsilon);
  for (int i = lane; i < dim; i += kWarp) row[i] *= inverse * weight[i];
  __syncwarp();
}

// Rotates the pairs (i, i + half), or (2i, 2i + 1), of a row; `half` angles.
__device__ __forceinline__ void rotate_head(float* row, const float* cosines, int half,
                                            int interleaved) {
  const float* sines = cosines + half;
  for (int i = threadIdx.x % kWarp; i < half; i += kWarp) {
    float& first = row[interleaved ? 2 * i : i];
    float& second = row[interleaved ? 2 * i + 1 : i + half];
    const float a = first, b = second;
    first = a * cosines[i] - b * sines[i];
    second = b * cosines[i] + a * sines[i];
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
};

// Returns the group of a token's head number `head`, and makes `head` its number within the group.
__device__ __forceinline__ HeadGroup group_of(const HeadGroup& a, const HeadGroup& b,
                                              const HeadGroup& c, int& head) {
  if (head < a.heads) return a;
  head -= a.heads;
  if (head < b.heads) return b;
  head -= b.heads;
  return c;
}

}  // namespace sharpi

// One to three groups of the same tokens; a group of no heads is absent. The KV cache is addressed
// by PageTables and positions (T,); is_q8_0 chooses q8_0 instead of f16. Dynamic shared memory:
// four rows of row_floats. Grid: all tokens' heads, four per block.
#define HEAD_GROUP(g)                                                                 \
  float *x_##g, const float *weight_##g, const float *angles_##g, uint8_t *pages_##g, \
      int heads_##g, int dim_##g, int weight_stride_##g, int half_##g, float epsilon_##g
#define AS_HEAD_GROUP(g)                                          \
  {x_##g,   weight_##g,        angles_##g, pages_##g,  heads_##g, \
   dim_##g, weight_stride_##g, half_##g,   epsilon_##g}
KERNEL __launch_bounds__(128)
    heads(HEAD_GROUP(a), HEAD_GROUP(b), HEAD_GROUP(c), const int* page_tables, const int* sequences,
          const int* positions, int table_stride, int tokens, int interleaved, int is_q8_0,
          int row_floats) {
  using namespace sharpi;
  DYN_SHARED(float, rows);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int item = blockIdx.x * kHeadsEach + warp, heads_each = heads_a + heads_b + heads_c;
  const int token = item / heads_each;
  if (token >= tokens) return;
  int head = item % heads_each;
  const HeadGroup group = group_of(AS_HEAD_GROUP(a), AS_HEAD_GROUP(b), AS_HEAD_GROUP(c), head);
  const int dim = group.dim;
  float* row = rows + size_t(warp) * row_floats;
  float* source = group.x + (size_t(token) * group.heads + head) * dim;
  for (int i = lane; i < dim; i += kWarp) row[i] = source[i];
  __syncwarp();
  if (group.weight)
    norm_head(row, group.weight + size_t(head) * group.weight_stride, dim, group.epsilon);
  if (group.angles)
    rotate_head(row, group.angles + size_t(token) * 2 * group.half, group.half, interleaved);
  if (!group.pages) {
    for (int i = lane; i < dim; i += kWarp) source[i] = row[i];
    return;
  }
  const PageTables tables{page_tables, sequences, table_stride};
  const int at = positions[token] % kPage, page = tables.of(token)[positions[token] / kPage];
  if (is_q8_0)
    KvQ8_0::store(group.pages + kv_head_at<KvQ8_0>(page, group.heads, head, dim), at, dim, row);
  else KvF16::store(group.pages + kv_head_at<KvF16>(page, group.heads, head, dim), at, dim, row);
}
