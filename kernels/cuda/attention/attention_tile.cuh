// Attention of 32 rows on tensor cores: f16 queries, keys, weights and values, sums in float32. A
// row is a query head of a token; all rows of a block share a KV head.
//
// A block goes page by page through the positions that its rows see. Its 8 warps are 2 sets of 16
// rows times 4 quarters: of a page's positions for the scores, and of 64 columns at a time for the
// values. The next 64 columns are loaded while the previous ones are multiplied.
#pragma once
#include "attention_spans.cuh"
#include "common/tensor_cores.cuh"
#include "kv_cache.cuh"

namespace sharpi {

constexpr int kTileThreads = 256, kTileRows = 32, kColumns = 64, kPieces = kColumns / 8;
constexpr int kStride = kColumns + 8;    // halves: adjacent rows lie in different banks
constexpr int kScoreStride = kPage + 4;  // floats
constexpr int kRowThreads = kTileThreads / kTileRows;

// The block's shared memory, one part after the other.
struct TileShared {
  __half* queries;  // (32, query_stride)
  __half* staged;   // (64 positions, kStride) of keys or values
  __half* weights;  // (32, kStride)
  float* scores;    // (32, kScoreStride)
  float* peak;      // (32,) the largest score so far; the sum of weights; what scales earlier sums
  float* total;
  float* factor;
  int query_stride;

  __device__ __forceinline__ TileShared(uint8_t* memory, int key_dim) {
    query_stride = (key_dim + kColumns - 1) / kColumns * kColumns + 8;
    queries = (__half*)memory;
    staged = queries + kTileRows * query_stride;
    weights = staged + kPage * kStride;
    scores = (float*)(weights + kTileRows * kStride);
    peak = scores + kTileRows * kScoreStride;
    total = peak + kTileRows;
    factor = total + kTileRows;
  }
};

struct WarpPosition {
  int lane, rows, quarter;  // `rows`: the first of the warp's 16 rows

  static __device__ __forceinline__ WarpPosition here() {
    const int warp = int(threadIdx.x) / kWarp;
    return {int(threadIdx.x) % kWarp, warp / 4 * 16, warp % 4};
  }
  // Returns the address of this lane's row of 8 halves for the fragments of 16 rows of 16 columns.
  __device__ __forceinline__ const uint8_t* fragment(const __half* from, int stride) const {
    return (const uint8_t*)(from + (lane % 16) * stride + lane / 16 * 8);
  }
};

__device__ __forceinline__ uint4 as_halves(KvF16, uint4 piece) { return piece; }
template <class Kv>
__device__ __forceinline__ uint4 as_halves(Kv, uint4 piece) {
  float values[8];
  Kv::unpack(piece, values);
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; i++)
    words[i] = __half_as_ushort(__float2half_rn(values[2 * i])) |
               uint32_t(__half_as_ushort(__float2half_rn(values[2 * i + 1]))) << 16;
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// 64 columns of a page's rows, zeros beyond `dim`, on their way to shared memory. Rows outside
// first..last may never have been written; the nearest one is read instead. AHEAD: they are loaded
// while the previous ones are multiplied, which takes registers.
template <bool AHEAD>
struct Stager {
  static constexpr int kLoads = kPage * kColumns / 8 / kTileThreads;
  uint4 loads[kLoads];
  int left;  // columns of the row that are not loaded yet

  template <class Kv>
  __device__ __forceinline__ void load_ahead(const uint8_t* page, int dim, int column, int first,
                                             int last) {
    if constexpr (AHEAD) {
      left = dim - column;
#pragma unroll
      for (int i = 0; i < kLoads; i++) {
        const int at = int(threadIdx.x) + i * kTileThreads, from = at % kPieces * 8;
        const int row = min(max(at / kPieces, first), last);
        if (from < left) loads[i] = Kv::load_8(page, row, dim, column + from);
      }
    }
  }
  // Writes columns that `load_ahead` was given before, if it loads any.
  template <class Kv>
  __device__ __forceinline__ void stage(__half* staged, const uint8_t* page, int dim, int column,
                                        int first, int last) const {
    if constexpr (AHEAD) {
#pragma unroll
      for (int i = 0; i < kLoads; i++)
        put<Kv>(staged, int(threadIdx.x) + i * kTileThreads, loads[i], left);
    } else {
      for (int at = threadIdx.x; at < kPage * kPieces; at += kTileThreads) {
        const int row = min(max(at / kPieces, first), last), from = column + at % kPieces * 8;
        uint4 piece = make_uint4(0u, 0u, 0u, 0u);
        if (from < dim) piece = Kv::load_8(page, row, dim, from);
        put<Kv>(staged, at, piece, dim - column);
      }
    }
  }
  template <class Kv>
  static __device__ __forceinline__ void put(__half* staged, int at, uint4 piece, int left) {
    const int from = at % kPieces * 8;
    const uint4 halves = from < left ? as_halves(Kv(), piece) : make_uint4(0u, 0u, 0u, 0u);
    *(uint4*)(staged + at / kPieces * kStride + from) = halves;
  }
};

// A KV head's keys and values in one page, and the rows that are seen.
struct TilePage {
  const uint8_t *keys, *values;
  int first, last;
};

// Rounds the queries of the block's rows to f16 in shared memory; query(row) is the address of one.
template <class Query>
__device__ __forceinline__ void load_queries(const TileShared& shared, int key_dim, Query query) {
  const int width = shared.query_stride - 8;
  for (int i = threadIdx.x; i < kTileRows * width; i += kTileThreads) {
    const int row = i / width, d = i % width;
    const float value = d < key_dim ? query(row)[d] : 0.f;
    shared.queries[row * shared.query_stride + d] = __float2half_rn(value);
  }
  if (threadIdx.x < kTileRows) {
    shared.peak[threadIdx.x] = -infinity();
    shared.total[threadIdx.x] = 0.f;
  }
}

// Computes the scores of the warp's 16 rows with its quarter of a page's positions. `next` has the
// first keys, and receives the first values.
template <class K, class V, bool AHEAD>
__device__ __forceinline__ void score_page(const TileShared& shared, const WarpPosition& at,
                                           const TilePage& page, Stager<AHEAD>& next, int key_dim,
                                           int stored_dim) {
  float c[2][4] = {};
  for (int column = 0; column < key_dim; column += kColumns) {
    __syncthreads();
    next.template stage<K>(shared.staged, page.keys, key_dim, column, page.first, page.last);
    __syncthreads();
    if (column + kColumns < key_dim)
      next.template load_ahead<K>(page.keys, key_dim, column + kColumns, page.first, page.last);
    else next.template load_ahead<V>(page.values, stored_dim, 0, page.first, page.last);
#pragma unroll
    for (int k = 0; k < kColumns; k += 16) {
      uint32_t a[4], b[4];
      const __half* own = shared.queries + at.rows * shared.query_stride + column + k;
      load_matrices(at.fragment(own, shared.query_stride), a);
      load_matrices(at.fragment(shared.staged + at.quarter * 16 * kStride + k, kStride), b);
      multiply_halves(a, b[0], b[2], c[0]);
      multiply_halves(a, b[1], b[3], c[1]);
    }
  }
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const int row = at.rows + at.lane / 4 + i / 2 % 2 * 8;
    const int position = at.quarter * 16 + i / 4 * 8 + at.lane % 4 * 2 + i % 2;
    shared.scores[row * kScoreStride + position] = c[i / 4][i % 4];
  }
}

// Turns a page's scores into weights; 8 adjacent lanes share a row.
template <class Rows>
__device__ __forceinline__ void weigh_page(const TileShared& shared, const Rows& rows,
                                           int page_begin, float scale, float soft_cap) {
  const int row = threadIdx.x / kRowThreads, lane = threadIdx.x % kRowThreads;
  const int begin = rows.begin(row) - page_begin, end = rows.end(row) - page_begin;
  float x[kPage / kRowThreads], peak = shared.peak[row], sum = 0.f;
  const float before = peak;
#pragma unroll
  for (int i = 0; i < kPage / kRowThreads; i++) {
    const int p = lane + i * kRowThreads;
    x[i] = shared.scores[row * kScoreStride + p] * scale;
    if (soft_cap != 0.f) x[i] = soft_cap * tanhf(x[i] / soft_cap);
    if (p < begin || p >= end) x[i] = -infinity();
    peak = fmaxf(peak, x[i]);
  }
  for (int offset = kRowThreads / 2; offset > 0; offset /= 2)
    peak = fmaxf(peak, __shfl_xor_sync(kFullWarp, peak, offset));
#pragma unroll
  for (int i = 0; i < kPage / kRowThreads; i++) {
    const float weight = x[i] == -infinity() ? 0.f : expf(x[i] - peak);
    sum += weight;
    shared.weights[row * kStride + lane + i * kRowThreads] = __float2half_rn(weight);
  }
  sum = sum_lanes(sum, kRowThreads);
  __syncwarp();  // all lanes have read the row's peak
  if (lane != 0) return;
  const float factor = before == peak ? 1.f : expf(before - peak);
  shared.peak[row] = peak;
  shared.total[row] = shared.total[row] * factor + sum;
  shared.factor[row] = factor;
}

// Adds a page's weighted values: c[chunk] are 16 columns of each 64. `next` has the first values,
// and receives the first keys of the `following` page.
template <class K, class V, bool AHEAD, int CHUNKS>
__device__ __forceinline__ void add_values(const TileShared& shared, const WarpPosition& at,
                                           const TilePage& page, const TilePage& following,
                                           Stager<AHEAD>& next, int key_dim, int stored_dim,
                                           int value_dim, float (&c)[CHUNKS][2][4]) {
  const float low = shared.factor[at.rows + at.lane / 4];
  const float high = shared.factor[at.rows + at.lane / 4 + 8];
#pragma unroll
  for (int chunk = 0; chunk < CHUNKS; chunk++) {
    if (chunk * kColumns >= value_dim) break;
    __syncthreads();
    next.template stage<V>(shared.staged, page.values, stored_dim, chunk * kColumns, page.first,
                           page.last);
    __syncthreads();
    if ((chunk + 1) * kColumns < value_dim)
      next.template load_ahead<V>(page.values, stored_dim, (chunk + 1) * kColumns, page.first,
                                  page.last);
    else next.template load_ahead<K>(following.keys, key_dim, 0, following.first, following.last);
#pragma unroll
    for (int i = 0; i < 8; i++) c[chunk][i / 4][i % 4] *= i % 4 < 2 ? low : high;
#pragma unroll
    for (int k = 0; k < kPage; k += 16) {
      uint32_t a[4], b[4];
      load_matrices(at.fragment(shared.weights + at.rows * kStride + k, kStride), a);
      const __half* own = shared.staged + k * kStride + at.quarter * 16;
      load_matrices_transposed(at.fragment(own, kStride), b);
      multiply_halves(a, b[0], b[1], c[chunk][0]);
      multiply_halves(a, b[2], b[3], c[chunk][1]);
    }
  }
}

// Goes through the pages of the positions begin..end - 1. `rows` says what each of the block's rows
// sees; page_of(i) is the number of page i of the sequence. c receives the sums of weighted values,
// for the weights' scale in shared.peak.
template <class K, class V, int CHUNKS, class Rows>
__device__ __forceinline__ void pass_pages(const TileShared& shared, const Rows& rows,
                                           const WarpPosition& at, const uint8_t* keys,
                                           const uint8_t* values, const int* page_table, int begin,
                                           int end, int key_dim, int value_dim, float scale,
                                           float soft_cap, float (&c)[CHUNKS][2][4]) {
  const int stored_dim = values ? value_dim : key_dim;
  const auto page_at = [&](int page) {
    const int number = page_table[page];
    const uint8_t* own = keys + kv_head_at<K>(number, gridDim.y, blockIdx.y, key_dim);
    const uint8_t* mixed = own;
    if (values) mixed = values + kv_head_at<V>(number, gridDim.y, blockIdx.y, value_dim);
    return TilePage{own, mixed, max(0, begin - page * kPage), min(kPage, end - page * kPage) - 1};
  };
  constexpr bool kAhead = CHUNKS <= 2;
  const int last = (end - 1) / kPage;
  TilePage now = page_at(begin / kPage);
  Stager<kAhead> next;
  next.template load_ahead<K>(now.keys, key_dim, 0, now.first, now.last);
  for (int page = begin / kPage; page <= last; page++) {
    if constexpr (!kAhead) now = page_at(page);
    const TilePage following = kAhead && page < last ? page_at(page + 1) : now;
    score_page<K, V>(shared, at, now, next, key_dim, stored_dim);
    __syncthreads();
    weigh_page(shared, rows, page * kPage, scale, soft_cap);
    __syncthreads();
    add_values<K, V>(shared, at, now, following, next, key_dim, stored_dim, value_dim, c);
    if constexpr (kAhead) now = following;
  }
}

}  // namespace sharpi
