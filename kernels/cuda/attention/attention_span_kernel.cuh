// Shared by the kernels that attend over one span of the KV cache: parameters, grid, and the merge
// by the block of a KV head that ends last.
#pragma once
#include "attention_heads.cuh"
#include "attention_merge.cuh"
#include "common/last_block.cuh"
#include "common/launch_order.cuh"

namespace sharpi {

// Merges the spans of a token's KV head in the block that ends last; without `done`, a later launch
// merges them. A KV head has `group` query heads in `tiles` blocks for each span.
__device__ __forceinline__ void merge_if_last(const Partials& partials, const MergedHeads& merged,
                                              int* done, int token, int num_heads, int group,
                                              int tiles, int visible, int position) {
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
// quantised, planes, hadamard: MergedHeads. q, k, v: groups of no heads need no preparation;
// row_floats: 0, or the width of key_dim; then dynamic shared memory has heads_each + 2 such rows,
// and `tiles` is 1. BLOCKS: of a multiprocessor at least; the last argument is the function of a
// block.
#define SPAN_KERNEL(NAME, BLOCKS, ...)                                                             \
  KERNEL __launch_bounds__(256, BLOCKS)                                                            \
      NAME(const float* queries, const uint8_t* keys, const uint8_t* values,                       \
           const int* page_tables, const int* sequences, const int* positions, float* scratch,     \
           int table_stride, int num_heads, int heads_each, int key_dim, int value_dim,            \
           float scale, int window, int is_chunked, float soft_cap, int* done, const float* sinks, \
           float* out, uint8_t* quantised, int planes, int hadamard, HEAD_GROUP(q), HEAD_GROUP(k), \
           HEAD_GROUP(v), int interleaved, int row_floats) {                                       \
    sharpi::wait_for_last_launch();                                                                \
    const sharpi::PageTables tables{page_tables, sequences, table_stride};                         \
    __VA_ARGS__(queries, keys, values, tables, positions, scratch, num_heads, heads_each, key_dim, \
                value_dim, scale, window, is_chunked, soft_cap, done,                              \
                {sinks, out, quantised, planes, hadamard},                                         \
                {AS_HEAD_GROUP(q), AS_HEAD_GROUP(k), AS_HEAD_GROUP(v), interleaved, row_floats});  \
  }
