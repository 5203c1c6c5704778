// Lists items by expert: offsets (experts + 1,), and each expert's items in ascending order. One
// block per expert; each of its warps scans a part of the ids.
#include "common/types.cuh"

namespace sharpi {

constexpr int kWarps = 8;

struct Counts {
  int lower;  // items of experts with lower ids
  int own;
};

__device__ __forceinline__ int sum_whole(int x) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(kFullWarp, x, offset);
  return x;
}

__device__ __forceinline__ Counts count_part(const int* ids, int begin, int end, int expert) {
  Counts counts = {0, 0};
  for (int i = begin + int(threadIdx.x) % kWarp; i < end; i += kWarp) {
    counts.lower += ids[i] < expert;
    counts.own += ids[i] == expert;
  }
  return {sum_whole(counts.lower), sum_whole(counts.own)};
}

__device__ __forceinline__ void write_part(const int* ids, int begin, int end, int expert,
                                           int* items) {
  const int lane = int(threadIdx.x) % kWarp;
  for (int base = begin; base < end; base += kWarp) {
    const bool is_own = base + lane < end && ids[base + lane] == expert;
    const unsigned own = __ballot_sync(kFullWarp, is_own);
    if (is_own) items[__popc(own & ((1u << lane) - 1))] = base + lane;
    items += __popc(own);
  }
}

}  // namespace sharpi

// ids (num_items,), each in [0, experts).
KERNEL __launch_bounds__(256)
    group_routes(const int* ids, int* offsets, int* items, int num_items, int experts) {
  using namespace sharpi;
  __shared__ Counts parts[kWarps];
  const int expert = int(blockIdx.x), warp = int(threadIdx.x) / kWarp;
  const int length = (num_items + kWarps - 1) / kWarps;
  const int begin = min(warp * length, num_items), end = min(begin + length, num_items);
  const Counts counts = count_part(ids, begin, end, expert);
  if (threadIdx.x % kWarp == 0) parts[warp] = counts;
  __syncthreads();
  int first = 0, at = 0;
  for (int i = 0; i < kWarps; i++) {
    first += parts[i].lower;
    at += i < warp ? parts[i].own : 0;
  }
  write_part(ids, begin, end, expert, items + first + at);
  if (threadIdx.x == 0) offsets[expert] = first;
  if (threadIdx.x == 0 && expert == experts - 1) offsets[experts] = num_items;
}
