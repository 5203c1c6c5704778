// Prepares every head for attention: RMS norm, rotary embedding, Hadamard transform, and the store
// into the KV cache.
//
// A warp holds one head of one token in shared memory.
#include "common/launch_order.cuh"
#include "heads.cuh"

namespace sharpi {

constexpr int kHeadsEach = 4;  // heads of a block, one per warp

// Returns the group of a token's head number `head`, and makes `head` its number within the group.
__device__ __forceinline__ HeadGroup group_of(const HeadGroup& a, const HeadGroup& b,
                                              const HeadGroup& c, int& head) {
  if (head < a.heads) return a;
  head -= a.heads;
  if (head < b.heads) return b;
  head -= b.heads;
  return c;
}

// Stores a prepared head in the type of its pages.
__device__ __forceinline__ void store_in_type(const HeadGroup& group, int head, const float* row,
                                              const int* page_table, int position) {
  switch (group.kv_type) {
    case kKvF16: return store_head<KvF16>(group, head, row, page_table, position);
    case kKvQ8_0: return store_head<KvQ8_0>(group, head, row, page_table, position);
    case kKvQ5_1: return store_head<KvQ5_1>(group, head, row, page_table, position);
    case kKvQ5_0: return store_head<KvQ5_0>(group, head, row, page_table, position);
    case kKvQ4_0: return store_head<KvQ4_0>(group, head, row, page_table, position);
    case kKvIQ4_NL: return store_head<KvIQ4_NL>(group, head, row, page_table, position);
    default: return store_head<KvTURBO3>(group, head, row, page_table, position);
  }
}

}  // namespace sharpi

// One to three groups of the same tokens; a group of no heads is absent. The KV cache is addressed
// by PageTables and positions (T,). Dynamic shared memory: four rows of row_floats. Grid: all
// tokens' heads, four per block.
KERNEL __launch_bounds__(128, 8)
    heads(HEAD_GROUP(a), HEAD_GROUP(b), HEAD_GROUP(c), const int* page_tables, const int* sequences,
          const int* positions, int table_stride, int tokens, int interleaved, int row_floats) {
  sharpi::wait_for_last_launch();
  using namespace sharpi;
  DYN_SHARED(float, rows);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int item = blockIdx.x * kHeadsEach + warp, heads_each = heads_a + heads_b + heads_c;
  const int token = item / heads_each;
  if (token >= tokens) return;
  int head = item % heads_each;
  const HeadGroup group = group_of(AS_HEAD_GROUP(a), AS_HEAD_GROUP(b), AS_HEAD_GROUP(c), head);
  float* row = rows + size_t(warp) * row_floats;
  prepare_head(group, token, head, row, interleaved);
  if (!group.pages) {
    float* source = group.x + (size_t(token) * group.heads + head) * group.dim;
    for (int i = lane; i < group.dim; i += kWarp) source[i] = row[i];
    return;
  }
  const int* page_table = PageTables{page_tables, sequences, table_stride}.of(token);
  store_in_type(group, head, row, page_table, positions[token]);
}
