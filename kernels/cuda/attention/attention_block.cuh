// State shared by the threads of an attention block: the span's rows in the KV cache, and shared
// memory.
#pragma once
#include "attention_spans.cuh"
#include "kv_cache.cuh"

namespace sharpi {

constexpr int kThreads = 256;
constexpr int kSpanPages = kSpan / kPage;

// Keys are staged in chunks of 64 dims, in pieces of 8. The stride is odd so that 8 adjacent rows
// lie in different banks.
constexpr int kPiece = 8, kChunk = 64, kChunkPieces = kChunk / kPiece;
constexpr int kKeyStride = kChunkPieces + 1;
constexpr int kWeightStride = kSpan + 4;
constexpr int kQuad = 4;  // dims of the values that one thread sums

template <int HEADS>
union SpanShared {
  struct {
    uint4 keys[kSpan * kKeyStride];
    float queries[HEADS][kChunk];
  } scoring;
  float weights[HEADS][kWeightStride];
  float sums[HEADS][kThreads * kQuad];
};

// One KV head's keys or values of a span; the query sees the rows first..last. Other rows may never
// have been written; the nearest visible row is read in their place, with weight zero. `pages`: the
// addresses of the head's part of each page, in shared memory.
template <class Kv>
struct SpanRows {
  const uint8_t* const* pages;
  int dim, first, last;

  __device__ __forceinline__ uint4 load_8(int row, int from) const {
    const int seen = min(max(row, first), last);
    return Kv::load_8(pages[seen / kPage], seen % kPage, dim, from);
  }
  __device__ __forceinline__ uint2 load_4(int row, int from) const {
    const int seen = min(max(row, first), last);
    return Kv::load_4(pages[seen / kPage], seen % kPage, dim, from);
  }
};

// Finds the addresses of the pages that the query sees, for the block's KV head.
template <class Kv>
__device__ __forceinline__ void find_pages(const uint8_t** pages, const uint8_t* cache,
                                           const int* page_table, int first, int last, int dim) {
  const int i = threadIdx.x;
  if (first / kPage <= i && i <= last / kPage)
    pages[i] = cache + kv_head_at<Kv>(page_table[i], gridDim.y, blockIdx.y, dim);
}

}  // namespace sharpi
