// Items whose experts the GPU has not, put together for the host: a block an item, which finds its
// own place among them. An expert of address 0 is one of those.
#include "expert_items.cuh"

// ids (items,); x (tokens, columns); weights (items,) or null: 1. To the host: num_late, experts
// (late,), rows (late, columns), late_weights (late,). places (items,): -1 for what the GPU has.
KERNEL __launch_bounds__(256)
    late_items(const int* ids, const uint64_t* addresses, const float* x, const float* weights,
               int* places, int* num_late, int* experts, float* rows, float* late_weights, int used,
               int columns) {
  using namespace sharpi;
  __shared__ int before;
  const int item = int(blockIdx.x);
  if (threadIdx.x == 0) before = 0;
  __syncthreads();
  int count = 0;
  for (int i = int(threadIdx.x); i < item; i += int(blockDim.x)) count += addresses[ids[i]] == 0;
  if (count) atomicAdd(&before, count);
  __syncthreads();
  const bool is_late = addresses[ids[item]] == 0;
  const int place = before;
  if (threadIdx.x == 0) {
    places[item] = is_late ? place : -1;
    if (item + 1 == int(gridDim.x)) *num_late = place + is_late;
    if (is_late) experts[place] = ids[item];
    if (is_late) late_weights[place] = weights ? weights[item] : 1.f;
  }
  if (!is_late) return;
  const float* row = x + size_t(item / used) * columns;
  for (int i = int(threadIdx.x); i < columns; i += int(blockDim.x))
    rows[size_t(place) * columns + i] = row[i];
}
