// What is done to every head before attention: RMS norm, rotation, and the way into the KV cache.
//
// A warp holds one head of one token in shared memory.
#include "kv_cache.cuh"

namespace sharpi {

constexpr int kHeadsEach = 4;  // heads that a block takes, one a warp

__device__ __forceinline__ void norm_head(float* row, const float* weight, int dim, float epsilon) {
  const int lane = threadIdx.x % kWarp;
  float sum = 0.f;
  for (int i = lane; i < dim; i += kWarp) sum += row[i] * row[i];
  const float inverse = 1.f / sqrtf(sum_lanes(sum) / dim + epsilon);
  for (int i = lane; i < dim; i += kWarp) row[i] *= inverse * weight[i];
  __syncwarp();
}

// Turns the pairs (i, i + half), or (2i, 2i + 1), of a row by half angles.
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

// Where a prepared head goes: `Place` of the launcher.
enum HeadPlace { kBackInPlace = 0, kCacheF16 = 1, kCacheQ8_0 = 2 };

}  // namespace sharpi

// x: (T, num_heads, dim). weight: (dim,), or (num_heads, dim) with a stride of dim; null: no norm.
// angles: (T, 2, half); null: no rotation. place: back into x, or into the KV cache: `pages` of one
// layer's keys or values, by page_table and positions (T,). Dynamic shared memory: four heads.
// Grid: all tokens' heads by four.
KERNEL __launch_bounds__(128)
    heads(float* x, const float* weight, const float* angles, uint8_t* pages, const int* page_table,
          const int* positions, int tokens, int num_heads, int dim, int weight_stride, int half,
          int interleaved, float epsilon, int place) {
  using namespace sharpi;
  DYN_SHARED(float, rows);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int item = blockIdx.x * kHeadsEach + warp;
  const int token = item / num_heads, head = item % num_heads;
  if (token >= tokens) return;
  float* row = rows + size_t(warp) * dim;
  float* home = x + size_t(item) * dim;
  for (int i = lane; i < dim; i += kWarp) row[i] = home[i];
  __syncwarp();
  if (weight) norm_head(row, weight + size_t(head) * weight_stride, dim, epsilon);
  if (angles) rotate_head(row, angles + size_t(token) * 2 * half, half, interleaved);
  if (place == kBackInPlace) {
    for (int i = lane; i < dim; i += kWarp) home[i] = row[i];
    return;
  }
  const int at = positions[token] % kPage, page = page_table[positions[token] / kPage];
  if (place == kCacheF16)
    KvF16::store(pages + kv_head_at<KvF16>(page, num_heads, head, dim), at, dim, row);
  else KvQ8_0::store(pages + kv_head_at<KvQ8_0>(page, num_heads, head, dim), at, dim, row);
}
