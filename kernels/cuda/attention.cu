// Attention of each token's heads to one span of the KV cache; attention_merge.cu joins the spans.
//
// A block takes HEADS query heads that share a KV head. Keys go through shared memory in chunks of
// 64 dims, the next chunk on its way in registers, so that a thread has whole dot products of its
// own. Values are read straight from memory: a thread has 8 dims of every R-th run of positions,
// and the sums of R threads are added in order at the end.
#include "attention_spans.cuh"
#include "block_sums.cuh"
#include "kv_cache.cuh"

namespace sharpi {

constexpr int kThreads = 256;
constexpr int kSpanPages = kSpan / kPage;
constexpr int kChunk = 64, kChunkPieces = kChunk / kPiece;  // dims of a key at a time
constexpr int kKeyStride = kChunkPieces + 1;  // odd: 8 neighbouring rows lie in different banks
constexpr int kLoads = kSpan * kChunkPieces / kThreads;
constexpr int kWeightStride = kSpan + 4;
constexpr int kRun = 4;          // neighbouring positions whose values a thread takes at once
constexpr int kHeadsJoined = 4;  // heads whose sums are added up at once

// What a block works on: heads begin..begin + count - 1 of a token, and the positions that they
// see, first..last, counted from the span's beginning.
struct SpanTask {
  int token, span, kv_head, begin, count, first, last;
};

// One KV head's keys or values of a span. In place of a row that the query does not see, which
// nobody may have set, the nearest that it sees is read; it counts for nothing. `pages`: where the
// head's part of each page begins, in shared memory.
template <class Kv>
struct SpanRows {
  const uint8_t* const* pages;
  int dim, first, last;

  __device__ __forceinline__ uint4 load(int row, int piece) const {
    const int seen = min(max(row, first), last);
    return Kv::load(pages[seen / kPage], seen % kPage, dim, piece);
  }
};

template <int HEADS>
union SpanShared {
  struct {
    uint4 keys[kSpan * kKeyStride];
    float queries[HEADS][kChunk];
  } scoring;
  float weights[HEADS][kWeightStride];
  float sums[HEADS < kHeadsJoined ? HEADS : kHeadsJoined][kThreads * kPiece];
};

// The heads and rows whose scores one thread has: rows row(0), row(1), ...
template <int HEADS>
struct ScoreShare {
  static constexpr int kHeads = HEADS < 4 ? HEADS : 4, kRows = HEADS / kHeads;
  static __device__ __forceinline__ int head(int h) {
    return threadIdx.x / (kThreads / kRows) * kHeads + h;
  }
  static __device__ __forceinline__ int row(int r) {
    return threadIdx.x % (kThreads / kRows) + r * (kThreads / kRows);
  }
};

template <class Kv>
__device__ __forceinline__ void load_keys(const SpanRows<Kv>& keys, int chunk, int pieces,
                                          uint4* loads) {
  const int row = threadIdx.x / kChunkPieces;
  const int piece = min(chunk * kChunkPieces + int(threadIdx.x) % kChunkPieces, pieces - 1);
#pragma unroll
  for (int i = 0; i < kLoads; i++) loads[i] = keys.load(row + i * (kThreads / kChunkPieces), piece);
}

// Puts a chunk of the keys and of the queries, times `scale`, into shared memory.
template <int HEADS>
__device__ __forceinline__ void stage_chunk(SpanShared<HEADS>& shared, const uint4* loads,
                                            const float* queries, int count, int dim, int chunk,
                                            float scale) {
  const int row = threadIdx.x / kChunkPieces, piece = threadIdx.x % kChunkPieces;
#pragma unroll
  for (int i = 0; i < kLoads; i++)
    shared.scoring.keys[(row + i * (kThreads / kChunkPieces)) * kKeyStride + piece] = loads[i];
  for (int i = threadIdx.x; i < HEADS * kChunk; i += kThreads) {
    const int head = i / kChunk, at = chunk * kChunk + i % kChunk;
    const bool is_set = head < count && at < dim;
    shared.scoring.queries[head][i % kChunk] = is_set ? queries[head * dim + at] * scale : 0.f;
  }
}

// Adds a chunk's products to the thread's scores.
template <class Kv, int HEADS>
__device__ __forceinline__ void score_chunk(
    const SpanShared<HEADS>& shared, int pieces,
    float (&scores)[ScoreShare<HEADS>::kRows][ScoreShare<HEADS>::kHeads]) {
  using Share = ScoreShare<HEADS>;
  for (int piece = 0; piece < pieces; piece++) {
    float key[Share::kRows][kPiece];
#pragma unroll
    for (int r = 0; r < Share::kRows; r++)
      Kv::unpack(shared.scoring.keys[Share::row(r) * kKeyStride + piece], key[r]);
#pragma unroll
    for (int h = 0; h < Share::kHeads; h++) {
      const float* q = &shared.scoring.queries[Share::head(h)][piece * kPiece];
      const float4 low = *(const float4*)q, high = *(const float4*)(q + 4);
#pragma unroll
      for (int r = 0; r < Share::kRows; r++) {
        const float* k = key[r];
        scores[r][h] += low.x * k[0] + low.y * k[1] + low.z * k[2] + low.w * k[3] + high.x * k[4] +
                        high.y * k[5] + high.z * k[6] + high.w * k[7];
      }
    }
  }
}

// Scores of all the span's positions, into shared memory.
template <class Kv, int HEADS>
__device__ __forceinline__ void score(SpanShared<HEADS>& shared, const SpanRows<Kv>& keys,
                                      const float* queries, int count, float scale,
                                      float soft_cap) {
  using Share = ScoreShare<HEADS>;
  float scores[Share::kRows][Share::kHeads] = {};
  uint4 loads[kLoads];
  const int pieces = (keys.dim + kPiece - 1) / kPiece;
  const int chunks = (pieces + kChunkPieces - 1) / kChunkPieces;
  load_keys(keys, 0, pieces, loads);
  for (int chunk = 0; chunk < chunks; chunk++) {
    __syncthreads();
    stage_chunk(shared, loads, queries, count, keys.dim, chunk, scale);
    __syncthreads();
    if (chunk + 1 < chunks) load_keys(keys, chunk + 1, pieces, loads);
    score_chunk<Kv>(shared, min(kChunkPieces, pieces - chunk * kChunkPieces), scores);
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < Share::kRows; r++)
#pragma unroll
    for (int h = 0; h < Share::kHeads; h++) {
      const float x = scores[r][h];
      shared.weights[Share::head(h)][Share::row(r)] =
          soft_cap > 0.f ? soft_cap * tanhf(x / soft_cap) : x;
    }
  __syncthreads();
}

// One warp makes weights of one head's scores: e^(score - largest), none for what is not seen.
__device__ __forceinline__ float2 weigh(float* weights, int first, int last) {
  const int lane = threadIdx.x % kWarp;
  float peak = -infinity(), total = 0.f;
  for (int row = lane; row < kSpan; row += kWarp)
    if (first <= row && row <= last) peak = fmaxf(peak, weights[row]);
  peak = max_lanes(peak);
  for (int row = lane; row < kSpan; row += kWarp) {
    const float weight = first <= row && row <= last ? expf(weights[row] - peak) : 0.f;
    weights[row] = weight;
    total += weight;
  }
  return make_float2(peak, sum_lanes(total));
}

// Adds a run of positions to the thread's sums: 8 dims of each head.
template <class Kv, int HEADS>
__device__ __forceinline__ void add_run(const SpanShared<HEADS>& shared, const SpanRows<Kv>& values,
                                        int row, int piece, float (&sums)[HEADS][kPiece]) {
  uint4 loads[kRun];
#pragma unroll
  for (int i = 0; i < kRun; i++) loads[i] = values.load(row + i, piece);
  float value[kRun][kPiece];
#pragma unroll
  for (int i = 0; i < kRun; i++) Kv::unpack(loads[i], value[i]);
#pragma unroll
  for (int h = 0; h < HEADS; h++) {
    const float4 weight = *(const float4*)&shared.weights[h][row];
#pragma unroll
    for (int d = 0; d < kPiece; d++) {
      sums[h][d] += weight.x * value[0][d];
      sums[h][d] += weight.y * value[1][d];
      sums[h][d] += weight.z * value[2][d];
      sums[h][d] += weight.w * value[3][d];
    }
  }
}

// The weighted values of `count` heads: (count, dim) at out(head).
template <class Kv, int HEADS, class Out>
__device__ __forceinline__ void mix(SpanShared<HEADS>& shared, const SpanRows<Kv>& values,
                                    int count, Out out) {
  constexpr int kJoined = HEADS < kHeadsJoined ? HEADS : kHeadsJoined;
  const int pieces = (values.dim + kPiece - 1) / kPiece, width = pieces * kPiece;
  const int runs = kThreads / pieces, run = threadIdx.x / pieces, piece = threadIdx.x % pieces;
  float sums[HEADS][kPiece] = {};
  if (run < runs)
    for (int row = run * kRun; row <= values.last; row += runs * kRun)
      if (row + kRun > values.first) add_run<Kv>(shared, values, row, piece, sums);
#pragma unroll
  for (int begin = 0; begin < HEADS; begin += kJoined) {
    __syncthreads();
#pragma unroll
    for (int h = 0; h < kJoined; h++)
#pragma unroll
      for (int d = 0; d < kPiece; d++)
        shared.sums[h][threadIdx.x * kPiece + d] = sums[begin + h][d];
    __syncthreads();
    for (int i = threadIdx.x; i < kJoined * width; i += kThreads) {
      const int h = i / width, d = i % width;
      if (begin + h >= count || d >= values.dim) continue;
      float sum = 0.f;
      for (int r = 0; r < runs; r++) sum += shared.sums[h][r * width + d];
      out(begin + h)[d] = sum;
    }
  }
}

}  // namespace sharpi

namespace sharpi {

// Where the pages that the query sees begin for the block's KV head.
template <class Kv>
__device__ __forceinline__ void find_pages(const uint8_t** pages, const uint8_t* cache,
                                           const int* page_table, int first, int last, int dim) {
  const int i = threadIdx.x;
  if (first / kPage <= i && i <= last / kPage)
    pages[i] = cache + kv_head_at<Kv>(page_table[i], gridDim.y, blockIdx.y, dim);
}

template <class Kv, int HEADS>
__device__ __forceinline__ void attend_span(const float* queries, const uint8_t* keys,
                                            const uint8_t* values, const int* page_table,
                                            const int* positions, float* scratch, int num_heads,
                                            int heads_each, int key_dim, int value_dim, float scale,
                                            int window, float soft_cap) {
  __shared__ SpanShared<HEADS> shared;
  __shared__ const uint8_t *key_pages[kSpanPages], *value_pages[kSpanPages];
  const int group = num_heads / gridDim.y, tiles = (group + heads_each - 1) / heads_each;
  const int span = blockIdx.x / tiles, tile = blockIdx.x % tiles, token = blockIdx.z;
  const int position = positions[token] - span * kSpan;  // as the span counts
  const int first = max(0, first_visible(positions[token], window) - span * kSpan);
  const int last = min(kSpan - 1, position);
  if (last < first) return;
  find_pages<Kv>(key_pages, keys, page_table + span * kSpanPages, first, last, key_dim);
  find_pages<Kv>(value_pages, values, page_table + span * kSpanPages, first, last, value_dim);
  __syncthreads();
  const int head = blockIdx.y * group + tile * heads_each;
  const int count = min(heads_each, group - tile * heads_each);
  const int item = token * num_heads + head;
  const SpanRows<Kv> key_rows{key_pages, key_dim, first, last};
  score(shared, key_rows, queries + size_t(item) * key_dim, count, scale, soft_cap);
  const Partials partials(scratch, gridDim.z * num_heads, gridDim.x / tiles, value_dim);
  const int warp = threadIdx.x / kWarp;
  if (warp < count) {
    const float2 state = weigh(shared.weights[warp], first, last);
    if (threadIdx.x % kWarp == 0) partials.state(item + warp, span) = state;
  }
  __syncthreads();
  const SpanRows<Kv> rows{value_pages, value_dim, first, last};
  mix(shared, rows, count, [&](int h) { return partials.value(item + h, span); });
}

}  // namespace sharpi

// queries: (T, num_heads, key_dim); keys, values: the pages of one layer; scratch: Partials.
// Grid (spans * tiles, KV heads, T), where a KV head's query heads are `tiles` times heads_each.
#define ATTENTION(NAME, KV, HEADS)                                                                \
  KERNEL __launch_bounds__(256, 2)                                                                \
      NAME(const float* queries, const uint8_t* keys, const uint8_t* values,                      \
           const int* page_table, const int* positions, float* scratch, int num_heads,            \
           int heads_each, int key_dim, int value_dim, float scale, int window, float soft_cap) { \
    sharpi::attend_span<sharpi::KV, HEADS>(queries, keys, values, page_table, positions, scratch, \
                                           num_heads, heads_each, key_dim, value_dim, scale,      \
                                           window, soft_cap);                                     \
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
