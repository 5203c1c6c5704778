// Computes the same as attention.cu, on tensor cores: each token's heads over one span of the KV
// cache.
//
// A block takes up to 32 query heads that share a KV head. Queries and weights are rounded to f16.
#include "attention_span_kernel.cuh"
#include "attention_tile.cuh"

namespace sharpi {

// All rows of a block see the same positions.
struct SpanSeen {
  int first, last;

  __device__ __forceinline__ int begin(int) const { return first; }
  __device__ __forceinline__ int end(int) const { return last + 1; }
};

// Leaves the block's `count` heads of a span for the merge; `item` is the first one.
template <int CHUNKS>
__device__ __forceinline__ void store_partials(const TileShared& shared, const Partials& partials,
                                               const WarpPosition& at, int item, int span,
                                               int count, const float (&c)[CHUNKS][2][4]) {
  if (int(threadIdx.x) < count)
    partials.state(item + threadIdx.x, span) =
        make_float2(shared.peak[threadIdx.x], shared.total[threadIdx.x]);
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int row = at.rows + at.lane / 4 + half * 8;
    if (row >= count) continue;
    float* target = partials.value(item + row, span);
#pragma unroll
    for (int i = 0; i < CHUNKS * 4; i++) {
      const int column = i / 4 * kColumns + at.quarter * 16 + i / 2 % 2 * 8 + at.lane % 4 * 2;
      if (column + i % 2 < partials.value_dim)
        target[column + i % 2] = c[i / 4][i / 2 % 2][half * 2 + i % 2];
    }
  }
}

template <class K, class V, int CHUNKS>
__device__ __forceinline__ void attend_split(const float* queries, const uint8_t* keys,
                                             const uint8_t* values, const PageTables& tables,
                                             const int* positions, float* scratch, int num_heads,
                                             int heads_each, int key_dim, int value_dim,
                                             float scale, int window, int is_chunked,
                                             float soft_cap, int* done, const MergedHeads& merged,
                                             const Unprepared& heads) {
  DYN_SHARED(uint8_t, memory);
  const TileShared shared(memory, key_dim);
  const int group = num_heads / gridDim.y, tiles = (group + heads_each - 1) / heads_each;
  const int span = blockIdx.x / tiles, tile = blockIdx.x % tiles, token = blockIdx.z;
  const int position = positions[token], visible = first_visible(position, window, is_chunked);
  const SpanSeen seen{max(visible, span * kSpan), min(position, span * kSpan + kSpan - 1)};
  if (seen.last < seen.first) return;
  const int* page_table = tables.of(token);
  const int head = blockIdx.y * group + tile * heads_each;
  const int count = min(heads_each, group - tile * heads_each);
  const int item = token * num_heads + head;
  const float* own = queries + size_t(item) * key_dim;
  if (heads.row_floats) {
    float* prepared = shared.factor + kTileRows;
    prepare<K, V>(heads, prepared, token, head, count, page_table, position,
                  span == position / kSpan);
    own = prepared;
  }
  load_queries(shared, key_dim,
               [&](int row) { return own + size_t(min(row, count - 1)) * key_dim; });
  const WarpPosition at = WarpPosition::here();
  float c[CHUNKS][2][4] = {};
  pass_pages<K, V>(shared, seen, at, keys, values, page_table, seen.first, seen.last + 1, key_dim,
                   value_dim, scale, soft_cap, c);
  const Partials partials(scratch, gridDim.z * num_heads, gridDim.x / tiles, value_dim);
  store_partials(shared, partials, at, item, span, count, c);
  merge_if_last(partials, merged, done, token, num_heads, group, tiles, visible, position);
}

}  // namespace sharpi

// See attention_span_kernel.cuh; with up to 32 heads each. FIRST_TYPE is the type of keys,
// SECOND_TYPE that of values. Dynamic shared memory: TileShared, then the rows of prepared heads.
#define SPLIT_ATTENTION(NAME, CHUNKS)    \
  SPAN_KERNEL(NAME, CHUNKS == 8 ? 1 : 2, \
              sharpi::attend_split<KV_OF_TYPE(FIRST_TYPE), KV_OF_TYPE(SECOND_TYPE), CHUNKS>)
#if HAS_SIZE(64)
SPLIT_ATTENTION(WITH_TYPES(split_attention_64), 1)
#endif
#if HAS_SIZE(128)
SPLIT_ATTENTION(WITH_TYPES(split_attention_128), 2)
#endif
#if HAS_SIZE(256)
SPLIT_ATTENTION(WITH_TYPES(split_attention_256), 4)
#endif
#if HAS_SIZE(512)
SPLIT_ATTENTION(WITH_TYPES(split_attention_512), 8)
#endif
