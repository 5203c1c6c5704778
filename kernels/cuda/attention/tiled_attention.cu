// Computes attention of many tokens of one sequence on tensor cores.
//
// A block takes 32 of the rows that share a KV head; each row is a token's query head.
#include "attention_tile.cuh"
#include "hadamard.cuh"

namespace sharpi {

// The rows of a block; over all blocks, row r is head r % group of token r / group.
struct TileQueries {
  const int* positions;
  int first, count, group, window, is_chunked;  // `first`: of this block; `count`: of all

  __device__ __forceinline__ int token(int row) const {
    return min(first + row, count - 1) / group;
  }
  __device__ __forceinline__ int end(int row) const { return positions[token(row)] + 1; }
  __device__ __forceinline__ int begin(int row) const {
    return first_visible(positions[token(row)], window, is_chunked);
  }
};

// Returns the divisor of a row's sums: the sum of its weights, and of its head's sink.
__device__ __forceinline__ float weight_of(const TileShared& shared, const float* sinks, int head,
                                           int row) {
  const float peak = shared.peak[row], total = shared.total[row];
  if (!sinks) return 1.f / total;
  const float most = fmaxf(peak, sinks[head]), scaled = expf(peak - most);
  return scaled / (total * scaled + expf(sinks[head] - most));
}

template <int CHUNKS>
__device__ __forceinline__ void store_rows(const TileShared& shared, const TileQueries& rows,
                                           const WarpPosition& at, const float* sinks, float* out,
                                           int num_heads, int first_head, int value_dim,
                                           const float (&c)[CHUNKS][2][4]) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int row = at.rows + at.lane / 4 + half * 8, each = rows.first + row;
    if (each >= rows.count) continue;
    const int head = first_head + each % rows.group;
    const float weight = weight_of(shared, sinks, head, row);
    float* target = out + (size_t(each / rows.group) * num_heads + head) * value_dim;
#pragma unroll
    for (int i = 0; i < CHUNKS * 4; i++) {
      const int column = i / 4 * kColumns + at.quarter * 16 + i / 2 % 2 * 8 + at.lane % 4 * 2;
      if (column + i % 2 < value_dim)
        target[column + i % 2] = c[i / 4][i / 2 % 2][half * 2 + i % 2] * weight;
    }
  }
}

// Undoes the transform of values in the block's rows of the result.
__device__ __forceinline__ void transform_rows(const TileQueries& rows, float* out, int num_heads,
                                               int first_head, int value_dim, int hadamard) {
  __syncthreads();
  for (int row = threadIdx.x / kWarp; row < kTileRows; row += kTileThreads / kWarp) {
    const int each = rows.first + row;
    if (each >= rows.count) return;
    const size_t item = size_t(each / rows.group) * num_heads + first_head + each % rows.group;
    transform_row(out + item * value_dim, value_dim, hadamard);
  }
}

template <class K, class V, int CHUNKS>
__device__ __forceinline__ void attend_tile(const TileShared& shared, const TileQueries& rows,
                                            const float* queries, const uint8_t* keys,
                                            const uint8_t* values, const int* page_table,
                                            const float* sinks, float* out, int num_heads,
                                            int key_dim, int value_dim, float scale, float soft_cap,
                                            int hadamard) {
  const WarpPosition at = WarpPosition::here();
  const int head = blockIdx.y * rows.group;
  load_queries(shared, key_dim, [&](int row) {
    const int each = min(rows.first + row, rows.count - 1);
    const size_t item = size_t(each / rows.group) * num_heads + head + each % rows.group;
    return queries + item * key_dim;
  });
  float c[CHUNKS][2][4] = {};
  pass_pages<K, V>(shared, rows, at, keys, values, page_table, rows.begin(0),
                   rows.end(kTileRows - 1), key_dim, value_dim, scale, soft_cap, c);
  store_rows(shared, rows, at, sinks, out, num_heads, head, value_dim, c);
  if (hadamard) transform_rows(rows, out, num_heads, head, value_dim, hadamard);
}

}  // namespace sharpi

// queries: (T, num_heads, key_dim); keys, values: the pages of one layer; null values mean that
// each row's values are the beginning of its key. page_table: the sequence's pages; positions (T,)
// are adjacent; sinks: (num_heads,), one more score in each head's denominator, or null. out: (T,
// num_heads * value_dim); hadamard: as in MergedHeads. FIRST_TYPE is the type of keys, SECOND_TYPE
// that of values. Grid (rows / 32, KV heads), shared memory as TileShared has it.
#define TILED_ATTENTION(NAME, CHUNKS)                                                            \
  KERNEL __launch_bounds__(256, CHUNKS == 8 ? 1 : 2)                                             \
      NAME(const float* queries, const uint8_t* keys, const uint8_t* values,                     \
           const int* page_table, const int* positions, const float* sinks, float* out,          \
           int tokens, int num_heads, int key_dim, int value_dim, float scale, int window,       \
           int is_chunked, float soft_cap, int hadamard) {                                       \
    DYN_SHARED(uint8_t, memory);                                                                 \
    const sharpi::TileShared shared(memory, key_dim);                                            \
    const int group = num_heads / int(gridDim.y), first = int(blockIdx.x) * sharpi::kTileRows;   \
    const sharpi::TileQueries rows{positions, first, tokens * group, group, window, is_chunked}; \
    sharpi::attend_tile<KV_OF_TYPE(FIRST_TYPE), KV_OF_TYPE(SECOND_TYPE), CHUNKS>(                \
        shared, rows, queries, keys, values, page_table, sinks, out, num_heads, key_dim,         \
        value_dim, scale, soft_cap, hadamard);                                                   \
  }
#if HAS_SIZE(64)
TILED_ATTENTION(WITH_TYPES(tiled_attention_64), 1)
#endif
#if HAS_SIZE(128)
TILED_ATTENTION(WITH_TYPES(tiled_attention_128), 2)
#endif
#if HAS_SIZE(256)
TILED_ATTENTION(WITH_TYPES(tiled_attention_256), 4)
#endif
#if HAS_SIZE(512)
TILED_ATTENTION(WITH_TYPES(tiled_attention_512), 8)
#endif
