// Computes attention of each token's heads over one span of the KV cache; attention_merge.cu joins
// the spans, or the block of a KV head that ends last. Each block can prepare its own queries, and
// the one that has the token's position its key and value.
//
// A block takes up to HEADS query heads that share a KV head, so that their keys and values are
// read only once.
#include "attention_heads.cuh"
#include "attention_merge.cuh"
#include "attention_scores.cuh"
#include "attention_values.cuh"
#include "common/last_block.cuh"
#include "common/launch_order.cuh"

namespace sharpi {

template <class Kv, int HEADS>
__device__ __forceinline__ void attend_span(const float* queries, const uint8_t* keys,
                                            const uint8_t* values, const PageTables& tables,
                                            const int* positions, float* scratch, int num_heads,
                                            int heads_each, int key_dim, int value_dim, float scale,
                                            int window, int is_chunked, float soft_cap, int* done,
                                            const MergedHeads& merged, const Unprepared& heads) {
  __shared__ SpanShared<HEADS> shared;
  __shared__ const uint8_t *key_pages[kSpanPages], *value_pages[kSpanPages];
  const int group = num_heads / gridDim.y, tiles = (group + heads_each - 1) / heads_each;
  const int span = blockIdx.x / tiles, tile = blockIdx.x % tiles, token = blockIdx.z;
  const int begin = span * kSpan;
  const int position = positions[token], visible = first_visible(position, window, is_chunked);
  const int first = max(0, visible - begin), last = min(kSpan - 1, position - begin);
  if (last < first) return;
  const int* page_table = tables.of(token) + span * kSpanPages;
  find_pages<Kv>(key_pages, keys, page_table, first, last, key_dim);
  const int value_stride = values ? value_dim : key_dim;
  find_pages<Kv>(value_pages, values ? values : keys, page_table, first, last, value_stride);
  __syncthreads();
  const int head = blockIdx.y * group + tile * heads_each;
  const int count = min(heads_each, group - tile * heads_each);
  const int item = token * num_heads + head;
  const SpanRows<Kv> key_rows{key_pages, key_dim, first, last};
  const float* own = queries + size_t(item) * key_dim;
  if (heads.row_floats) {
    DYN_SHARED(float, prepared);
    prepare<Kv>(heads, prepared, token, head, count, tables.of(token), position,
                span == position / kSpan);
    own = prepared;
  }
  score(shared, key_rows, own, count, scale, soft_cap);
  const Partials partials(scratch, gridDim.z * num_heads, gridDim.x / tiles, value_dim);
  const int warp = threadIdx.x / kWarp;
  if (warp < count) {
    const float2 state = weigh(shared.weights[warp], first, last);
    if (threadIdx.x % kWarp == 0) partials.state(item + warp, span) = state;
  }
  __syncthreads();
  const SpanRows<Kv> rows{value_pages, value_stride, first, last};
  mix(shared, rows, value_dim, count, [&](int h) { return partials.value(item + h, span); });
  if (!done) return;
  const int from = visible / kSpan, end = position / kSpan + 1;
  if (is_last_block(done + token * gridDim.y + blockIdx.y, tiles * (end - from)))
    merge_heads(partials, merged, token, num_heads, blockIdx.y * group, group, from, end);
}

}  // namespace sharpi

// queries: (T, num_heads, key_dim); keys, values: the pages of one layer; null values mean that
// each row's values are the beginning of its key. page_tables, sequences, table_stride: PageTables;
// scratch: Partials. Grid (spans * tiles, KV heads, T): a KV head has `tiles` times heads_each
// query heads. done (T, KV heads): 0, or null where the spans are merged later; sinks, out,
// rounded, planes: MergedHeads. q, k, v: groups of no heads need no preparation; row_floats: 0, or
// the width of key_dim; then dynamic shared memory has heads_each + 2 such rows, and `tiles` is 1.
#define ATTENTION(NAME, KV, HEADS)                                                                 \
  KERNEL __launch_bounds__(256, 2) NAME(                                                           \
      const float* queries, const uint8_t* keys, const uint8_t* values, const int* page_tables,    \
      const int* sequences, const int* positions, float* scratch, int table_stride, int num_heads, \
      int heads_each, int key_dim, int value_dim, float scale, int window, int is_chunked,         \
      float soft_cap, int* done, const float* sinks, float* out, uint8_t* rounded, int planes,     \
      HEAD_GROUP(q), HEAD_GROUP(k), HEAD_GROUP(v), int interleaved, int row_floats) {              \
    sharpi::wait_for_last_launch();                                                                \
    const sharpi::PageTables tables{page_tables, sequences, table_stride};                         \
    sharpi::attend_span<sharpi::KV, HEADS>(                                                        \
        queries, keys, values, tables, positions, scratch, num_heads, heads_each, key_dim,         \
        value_dim, scale, window, is_chunked, soft_cap, done, {sinks, out, rounded, planes},       \
        {AS_HEAD_GROUP(q), AS_HEAD_GROUP(k), AS_HEAD_GROUP(v), interleaved, row_floats});          \
  }
#define ATTENTION_OF_TYPE(TYPE, KV)         \
  ATTENTION(attention_heads1_##TYPE, KV, 1) \
  ATTENTION(attention_heads2_##TYPE, KV, 2) \
  ATTENTION(attention_heads4_##TYPE, KV, 4) \
  ATTENTION(attention_heads8_##TYPE, KV, 8)

#ifndef ONLY_Q8_0
ATTENTION_OF_TYPE(f16, KvF16)
#endif
#ifndef ONLY_F16
ATTENTION_OF_TYPE(q8_0, KvQ8_0)
#endif
