// Copies the experts of a list in a launch of its own.
#include "common/clock.cuh"
#include "gather_experts.cuh"

namespace sharpi {

// Lets the last block that has copied its part say when that was: it adds the time since then to
// `waited`, or sets it without `since`. `copied` counts the blocks.
__device__ __forceinline__ void end_wait(int* copied, const int64_t* since, int64_t* waited) {
  __syncthreads();
  if (threadIdx.x || atomicAdd(copied, 1) + 1 < int(gridDim.x)) return;
  atomicExch(copied, 0);
  const int64_t now = nanoseconds();
  *waited = since ? *waited + now - *since : now;
}

}  // namespace sharpi

// The list and its pieces: see Gather. copied, since, waited: see end_wait; without `waited`
// nothing is measured. Blocks of 256 threads; any grid.
KERNEL __launch_bounds__(256)
    gather_experts(const int* loads, const uint64_t* host_addresses_a, uint8_t* slots_a,
                   uint8_t* early_a, uint8_t* staging_a, int64_t stride_a, int64_t bytes_a,
                   const uint64_t* host_addresses_b, uint8_t* slots_b, uint8_t* early_b,
                   uint8_t* staging_b, int64_t stride_b, int64_t bytes_b,
                   const uint64_t* host_addresses_c, uint8_t* slots_c, uint8_t* early_c,
                   uint8_t* staging_c, int64_t stride_c, int64_t bytes_c, int experts,
                   int num_slots, int num_early, int* copied, const int64_t* since,
                   int64_t* waited) {
  using namespace sharpi;
  const Gather gather = {loads,
                         {host_addresses_a, slots_a, early_a, staging_a, stride_a, bytes_a},
                         {host_addresses_b, slots_b, early_b, staging_b, stride_b, bytes_b},
                         {host_addresses_c, slots_c, early_c, staging_c, stride_c, bytes_c},
                         {experts, num_slots, num_early, 0},
                         256};
  gather.copy(int(blockIdx.x), int(gridDim.x));
  if (waited && gather.count()) end_wait(copied, since, waited);
}
