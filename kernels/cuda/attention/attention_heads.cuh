// Prepares a token's queries, key and value of one KV head, within a block of attention.
#pragma once
#include "heads.cuh"

namespace sharpi {

// The heads to prepare here; without memory for their rows, they are prepared already.
struct Unprepared {
  HeadGroup q, k, v;
  int interleaved, row_floats;
};

// Prepares `count` queries from `first` on in shared memory, and stores the key and the value of
// the token's KV head in the cache. prepared: rows for all of these; the queries come first.
template <class K, class V>
__device__ __forceinline__ void prepare(const Unprepared& heads, float* prepared, int token,
                                        int first, int count, const int* page_table, int position,
                                        bool stores) {
  const int jobs = count + 2 * stores, warp = threadIdx.x / kWarp;
  for (int job = warp; job < jobs; job += int(blockDim.x) / kWarp) {
    float* row = prepared + job * heads.row_floats;
    const HeadGroup group = job < count ? heads.q : job == count ? heads.k : heads.v;
    if (!group.heads) continue;
    const int head = job < count ? first + job : int(blockIdx.y);
    prepare_head(group, token, head, row, heads.interleaved);
    if (job == count) store_head<K>(group, head, row, page_table, position);
    if (job > count) store_head<V>(group, head, row, page_table, position);
  }
  __syncthreads();
}

}  // namespace sharpi
