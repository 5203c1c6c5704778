// Collects the items whose experts are not on the GPU, so that the CPU can compute them: one block
// per item, which finds the item among them. Such an expert has the address 0.
#include "expert_items.cuh"

// ids (items,); x (tokens, columns); weights (items,), or null for 1. Written to the host:
// num_host_items, experts (host items,), rows (host items, columns), host_weights (host items,).
// host_rows (items,): the index among the host items, or -1 where the expert is on the GPU.
KERNEL __launch_bounds__(256)
    host_items(const int* ids, const uint64_t* addresses, const float* x, const float* weights,
               int* host_rows, int* num_host_items, int* experts, float* rows, float* host_weights,
               int used, int columns) {
  using namespace sharpi;
  __shared__ int before;
  const int item = int(blockIdx.x);
  if (threadIdx.x == 0) before = 0;
  __syncthreads();
  int count = 0;
  for (int i = int(threadIdx.x); i < item; i += int(blockDim.x)) count += addresses[ids[i]] == 0;
  if (count) atomicAdd(&before, count);
  __syncthreads();
  const bool is_on_host = addresses[ids[item]] == 0;
  const int host_row = before;
  if (threadIdx.x == 0) {
    host_rows[item] = is_on_host ? host_row : -1;
    if (item + 1 == int(gridDim.x)) *num_host_items = host_row + is_on_host;
    if (is_on_host) experts[host_row] = ids[item];
    if (is_on_host) host_weights[host_row] = weights ? weights[item] : 1.f;
  }
  if (!is_on_host) return;
  const float* row = x + size_t(item / used) * columns;
  for (int i = int(threadIdx.x); i < columns; i += int(blockDim.x))
    rows[size_t(host_row) * columns + i] = row[i];
}
