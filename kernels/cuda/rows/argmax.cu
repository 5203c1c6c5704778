// Finds the id of each row's largest logit: the lowest id among equals, or -1 if that logit is not
// finite. With one row, it can make that token the input of the next step.
#include "common/block_sums.cuh"
#include "common/launch_order.cuh"

namespace sharpi {

struct Best {
  float value;
  int id;

  __device__ __forceinline__ void meet(float other, int other_id) {
    if (other > value || (other == value && other_id < id)) value = other, id = other_id;
  }
  __device__ __forceinline__ void meet_lanes() {
    for (int offset = kWarp / 2; offset > 0; offset /= 2)
      meet(__shfl_xor_sync(kFullWarp, value, offset), __shfl_xor_sync(kFullWarp, id, offset));
  }
};

}  // namespace sharpi

// logits: (rows, width); out: (rows,). next_id, next_position: the input of a step of one token,
// which get the id and the next position; or null. One block of 1024 threads per row, grid (rows).
KERNEL __launch_bounds__(1024)
    argmax(const float* logits, int* out, int* next_id, int* next_position, int width) {
  sharpi::wait_for_last_launch();
  using namespace sharpi;
  __shared__ float values[kWarp];
  __shared__ int ids[kWarp];
  const float* row = logits + size_t(blockIdx.x) * width;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  Best best = {-infinity(), width};
#pragma unroll 8
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    const float x = row[i];
    best.meet(x == x ? x : infinity(), i);
  }
  best.meet_lanes();
  if (lane == 0) values[warp] = best.value, ids[warp] = best.id;
  __syncthreads();
  if (warp > 0) return;
  best = {values[lane], ids[lane]};
  best.meet_lanes();
  if (lane > 0) return;
  const bool is_finite = fabsf(best.value) < infinity();
  out[blockIdx.x] = is_finite ? best.id : -1;
  if (!next_id) return;
  *next_id = is_finite ? best.id : 0;  // an id that is in the vocabulary
  *next_position += 1;
}
