// Computes attention of each token's heads over one span of the KV cache. Either attention_merge.cu
// joins the spans, or the block of a KV head that ends last does. Each block can prepare its own
// queries; the block whose span has the token's position can also prepare its key and value.
//
// A block takes up to HEADS query heads that share a KV head, so that their keys and values are
// read only once.
#include "attention_scores.cuh"
#include "attention_span_kernel.cuh"
#include "attention_values.cuh"

namespace sharpi {

template <class K, class V, int HEADS>
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
  find_pages<K>(key_pages, keys, page_table, first, last, key_dim);
  const int value_stride = values ? value_dim : key_dim;
  find_pages<V>(value_pages, values ? values : keys, page_table, first, last, value_stride);
  __syncthreads();
  const int head = blockIdx.y * group + tile * heads_each;
  const int count = min(heads_each, group - tile * heads_each);
  const int item = token * num_heads + head;
  const SpanRows<K> key_rows{key_pages, key_dim, first, last};
  const float* own = queries + size_t(item) * key_dim;
  if (heads.row_floats) {
    DYN_SHARED(float, prepared);
    prepare<K, V>(heads, prepared, token, head, count, tables.of(token), position,
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
  const SpanRows<V> rows{value_pages, value_stride, first, last};
  mix(shared, rows, value_dim, count, [&](int h) { return partials.value(item + h, span); });
  merge_if_last(partials, merged, done, token, num_heads, group, tiles, visible, position);
}

}  // namespace sharpi

// See attention_span_kernel.cuh; FIRST_TYPE is the type of keys, SECOND_TYPE that of values.
#define ATTENTION(NAME, HEADS) \
  SPAN_KERNEL(NAME, 2, sharpi::attend_span<KV_OF_TYPE(FIRST_TYPE), KV_OF_TYPE(SECOND_TYPE), HEADS>)
#if HAS_SIZE(1)
ATTENTION(WITH_TYPES(attention_heads1), 1)
#endif
#if HAS_SIZE(2)
ATTENTION(WITH_TYPES(attention_heads2), 2)
#endif
#if HAS_SIZE(4)
ATTENTION(WITH_TYPES(attention_heads4), 4)
#endif
#if HAS_SIZE(8)
ATTENTION(WITH_TYPES(attention_heads8), 8)
#endif
