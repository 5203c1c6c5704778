// Reads memory and does nothing else, to measure the bandwidth that other kernels are compared
// with.
//
// Each warp stores the XOR of everything that it read, so that the compiler cannot drop a load.
#include "types.cuh"

namespace sharpi {
constexpr int kReadThreads = 256, kReadAtOnce = 8, kReadTurns = 4;  // 128 KiB per block
}

// data: `count` times 16 bytes; sums (blocks, 8).
KERNEL __launch_bounds__(256) read_rate(const uint4* data, uint32_t* sums, int64_t count) {
  using namespace sharpi;
  const size_t first = size_t(blockIdx.x) * (kReadThreads * kReadAtOnce * kReadTurns);
  uint32_t sum = 0;
#pragma unroll
  for (int turn = 0; turn < kReadTurns; turn++) {
    uint4 words[kReadAtOnce];
#pragma unroll
    for (int i = 0; i < kReadAtOnce; i++) {
      const size_t at = first + (turn * kReadAtOnce + i) * kReadThreads + threadIdx.x;
      words[i] = at < size_t(count) ? data[at] : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < kReadAtOnce; i++) sum ^= words[i].x ^ words[i].y ^ words[i].z ^ words[i].w;
  }
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    sum ^= __shfl_xor_sync(kFullWarp, sum, offset);
  const int warps = kReadThreads / kWarp;
  if (threadIdx.x % kWarp == 0) sums[blockIdx.x * warps + threadIdx.x / kWarp] = sum;
}
