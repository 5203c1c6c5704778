// Second half of attention: the sum of a span's values, weighted.
//
// Values are read directly from global memory. A thread sums 4 dims of every R-th run of 8
// positions; the sums of R threads are added in order at the end.
#pragma once
#include "attention_block.cuh"

namespace sharpi {

constexpr int kRun = 8;

// Adds a run of positions to the thread's sums.
template <class Kv, int HEADS>
__device__ __forceinline__ void add_run(const SpanShared<HEADS>& shared, const uint2* loads,
                                        int row, float (&sums)[HEADS][kQuad]) {
#pragma unroll
  for (int i = 0; i < kRun; i += 4) {
    float values[4][kQuad];
#pragma unroll
    for (int j = 0; j < 4; j++) Kv::unpack(loads[i + j], values[j]);
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
      const float4 weight = *(const float4*)&shared.weights[h][row + i];
#pragma unroll
      for (int d = 0; d < kQuad; d++) {
        sums[h][d] += weight.x * values[0][d];
        sums[h][d] += weight.y * values[1][d];
        sums[h][d] += weight.z * values[2][d];
        sums[h][d] += weight.w * values[3][d];
      }
    }
  }
}

template <class Kv>
__device__ __forceinline__ void load_run(const SpanRows<Kv>& values, int row, int from,
                                         uint2* loads) {
#pragma unroll
  for (int i = 0; i < kRun; i++) loads[i] = values.load_4(row + i, from);
}

// Writes the weighted values of `count` heads, the first `dim` values of each row, to out(head).
template <class Kv, int HEADS, class Out>
__device__ __forceinline__ void mix(SpanShared<HEADS>& shared, const SpanRows<Kv>& values, int dim,
                                    int count, Out out) {
  const int quads = (dim + kQuad - 1) / kQuad, width = quads * kQuad;
  const int runs = kThreads / quads, run = threadIdx.x / quads, quad = threadIdx.x % quads;
  float sums[HEADS][kQuad] = {};
  uint2 loads[kRun];
  if (run < runs)
    for (int row = run * kRun; row <= values.last; row += runs * kRun)
      if (row + kRun > values.first) {
        load_run(values, row, quad * kQuad, loads);
        add_run<Kv>(shared, loads, row, sums);
      }
  __syncthreads();
#pragma unroll
  for (int h = 0; h < HEADS; h++)
    *(float4*)&shared.sums[h][threadIdx.x * kQuad] =
        make_float4(sums[h][0], sums[h][1], sums[h][2], sums[h][3]);
  __syncthreads();
  for (int i = threadIdx.x; i < count * width; i += kThreads) {
    const int head = i / width, d = i % width;
    if (d >= dim) continue;
    float sum = 0.f;
    for (int r = 0; r < runs; r++) sum += shared.sums[head][r * width + d];
    out(head)[d] = sum;
  }
}

}  // namespace sharpi
