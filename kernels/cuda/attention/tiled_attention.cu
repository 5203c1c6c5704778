// Computes attention of many tokens of one sequence on tensor cores: f16 queries, keys, weights and
// values, sums in float32.
//
// A block takes 32 rows, each a token's query head, of those that share a KV head, and passes page
// by page over what they see. Its 8 warps are 2 sets of 16 rows times 4 quarters: of a page's
// positions for the scores, and of 64 columns at a time for the values.
#include "attention_spans.cuh"
#include "common/tensor_cores.cuh"
#include "kv_cache.cuh"

namespace sharpi {

constexpr int kTileThreads = 256, kTileRows = 32, kColumns = 64;
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

// The rows of a block: row r of all is head r % group of token r / group.
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

struct WarpPlace {
  int lane, rows, quarter;  // `rows`: the first of the warp's 16 rows

  static __device__ __forceinline__ WarpPlace here() {
    const int warp = int(threadIdx.x) / kWarp;
    return {int(threadIdx.x) % kWarp, warp / 4 * 16, warp % 4};
  }
  // Returns the address of this lane's row of 8 halves for the fragments of 16 rows of 16 columns.
  __device__ __forceinline__ const uint8_t* fragment(const __half* from, int stride) const {
    return (const uint8_t*)(from + (lane % 16) * stride + lane / 16 * 8);
  }
};

__device__ __forceinline__ uint4 as_halves(KvF16, uint4 piece) { return piece; }
__device__ __forceinline__ uint4 as_halves(KvQ8_0, uint4 piece) {
  float values[8];
  KvQ8_0::unpack(piece, values);
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; i++)
    words[i] = __half_as_ushort(__float2half_rn(values[2 * i])) |
               uint32_t(__half_as_ushort(__float2half_rn(values[2 * i + 1]))) << 16;
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// Loads 64 columns of a page's rows, zeros beyond `dim`. Rows outside first..last may never have
// been written; the nearest one is read instead.
template <class Kv>
__device__ __forceinline__ void stage(__half* staged, const uint8_t* page, int dim, int column,
                                      int first, int last) {
  for (int i = threadIdx.x; i < kPage * kColumns / 8; i += kTileThreads) {
    const int row = i / (kColumns / 8), piece = i % (kColumns / 8), from = column + 8 * piece;
    uint4 halves = make_uint4(0u, 0u, 0u, 0u);
    if (from < dim)
      halves = as_halves(Kv(), Kv::load_8(page, min(max(row, first), last), dim, from));
    *(uint4*)(staged + row * kStride + 8 * piece) = halves;
  }
}

__device__ __forceinline__ void load_queries(const TileShared& shared, const TileQueries& rows,
                                             const float* queries, int num_heads, int head,
                                             int key_dim) {
  const int width = shared.query_stride - 8;
  for (int i = threadIdx.x; i < kTileRows * width; i += kTileThreads) {
    const int row = i / width, d = i % width;
    const int each = min(rows.first + row, rows.count - 1);
    const size_t item = size_t(each / rows.group) * num_heads + head + each % rows.group;
    const float value = d < key_dim ? queries[item * key_dim + d] : 0.f;
    shared.queries[row * shared.query_stride + d] = __float2half_rn(value);
  }
}

// Computes the scores of the warp's 16 rows with its quarter of a page's positions.
template <class Kv>
__device__ __forceinline__ void score_page(const TileShared& shared, const WarpPlace& at,
                                           const uint8_t* page, int key_dim, int first, int last) {
  float c[2][4] = {};
  for (int column = 0; column < key_dim; column += kColumns) {
    __syncthreads();
    stage<Kv>(shared.staged, page, key_dim, column, first, last);
    __syncthreads();
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

// Turns the scores of a page into weights; 8 adjacent lanes have a row.
__device__ __forceinline__ void weigh_page(const TileShared& shared, const TileQueries& rows,
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

// Adds a page's weighted values: c[chunk] are 16 columns of each 64.
template <class Kv, int CHUNKS>
__device__ __forceinline__ void add_values(const TileShared& shared, const WarpPlace& at,
                                           const uint8_t* page, int dim, int value_dim, int first,
                                           int last, float (&c)[CHUNKS][2][4]) {
  const float low = shared.factor[at.rows + at.lane / 4];
  const float high = shared.factor[at.rows + at.lane / 4 + 8];
#pragma unroll
  for (int chunk = 0; chunk < CHUNKS; chunk++) {
    if (chunk * kColumns >= value_dim) break;
    __syncthreads();
    stage<Kv>(shared.staged, page, dim, chunk * kColumns, first, last);
    __syncthreads();
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

// Returns what divides a row's sums: its weights, and that of its head's sink.
__device__ __forceinline__ float weight_of(const TileShared& shared, const float* sinks, int head,
                                           int row) {
  const float peak = shared.peak[row], total = shared.total[row];
  if (!sinks) return 1.f / total;
  const float most = fmaxf(peak, sinks[head]), scaled = expf(peak - most);
  return scaled / (total * scaled + expf(sinks[head] - most));
}

template <int CHUNKS>
__device__ __forceinline__ void store_rows(const TileShared& shared, const TileQueries& rows,
                                           const WarpPlace& at, const float* sinks, float* out,
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

template <class Kv, int CHUNKS>
__device__ __forceinline__ void attend_tile(const TileShared& shared, const TileQueries& rows,
                                            const float* queries, const uint8_t* keys,
                                            const uint8_t* values, const int* page_table,
                                            const float* sinks, float* out, int num_heads,
                                            int key_dim, int value_dim, float scale,
                                            float soft_cap) {
  const WarpPlace at = WarpPlace::here();
  const int head = blockIdx.y * rows.group, end = rows.end(kTileRows - 1), begin = rows.begin(0);
  load_queries(shared, rows, queries, num_heads, head, key_dim);
  if (threadIdx.x < kTileRows) {
    shared.peak[threadIdx.x] = -infinity();
    shared.total[threadIdx.x] = 0.f;
  }
  const int stored_dim = values ? value_dim : key_dim;
  float c[CHUNKS][2][4] = {};
  for (int page = begin / kPage; page * kPage < end; page++) {
    const int first = max(0, begin - page * kPage), last = min(kPage, end - page * kPage) - 1;
    const int number = page_table[page];
    const uint8_t* own = keys + kv_head_at<Kv>(number, gridDim.y, blockIdx.y, key_dim);
    score_page<Kv>(shared, at, own, key_dim, first, last);
    __syncthreads();
    weigh_page(shared, rows, page * kPage, scale, soft_cap);
    __syncthreads();
    if (values) own = values + kv_head_at<Kv>(number, gridDim.y, blockIdx.y, value_dim);
    add_values<Kv>(shared, at, own, stored_dim, value_dim, first, last, c);
  }
  store_rows(shared, rows, at, sinks, out, num_heads, head, value_dim, c);
}

}  // namespace sharpi

// queries: (T, num_heads, key_dim); keys, values: the pages of one layer; null values mean that
// each row's values are the beginning of its key. page_table: the sequence's pages; positions (T,)
// are adjacent; sinks: (num_heads,), one more score in each head's denominator, or null. out: (T,
// num_heads * value_dim). Grid (rows / 32, KV heads), shared memory as TileShared has it.
#define TILED_ATTENTION(NAME, KV, CHUNKS)                                                        \
  KERNEL __launch_bounds__(256, 2) NAME(                                                         \
      const float* queries, const uint8_t* keys, const uint8_t* values, const int* page_table,   \
      const int* positions, const float* sinks, float* out, int tokens, int num_heads,           \
      int key_dim, int value_dim, float scale, int window, int is_chunked, float soft_cap) {     \
    DYN_SHARED(uint8_t, memory);                                                                 \
    const sharpi::TileShared shared(memory, key_dim);                                            \
    const int group = num_heads / int(gridDim.y), first = int(blockIdx.x) * sharpi::kTileRows;   \
    const sharpi::TileQueries rows{positions, first, tokens * group, group, window, is_chunked}; \
    sharpi::attend_tile<sharpi::KV, CHUNKS>(shared, rows, queries, keys, values, page_table,     \
                                            sinks, out, num_heads, key_dim, value_dim, scale,    \
                                            soft_cap);                                           \
  }
#define TILED_ATTENTION_OF_TYPE(TYPE, KV)            \
  TILED_ATTENTION(tiled_attention_64_##TYPE, KV, 1)  \
  TILED_ATTENTION(tiled_attention_128_##TYPE, KV, 2) \
  TILED_ATTENTION(tiled_attention_256_##TYPE, KV, 4) \
  TILED_ATTENTION(tiled_attention_512_##TYPE, KV, 8)

#ifndef ONLY_Q8_0
TILED_ATTENTION_OF_TYPE(f16, KvF16)
#endif
#ifndef ONLY_F16
TILED_ATTENTION_OF_TYPE(q8_0, KvQ8_0)
#endif
