// Accesses that nothing orders, and pairs of them that something does: test_emulator_races.py.
#define KERNEL extern "C" __global__ void
#define ALL 0xffffffffu

KERNEL read_after_write(int* y) {
  __shared__ int s[64];
  s[threadIdx.x] = threadIdx.x;
  y[threadIdx.x] = s[63 - threadIdx.x];
}

KERNEL write_after_read(int* y) {
  __shared__ int s[64];
  s[threadIdx.x] = threadIdx.x;
  __syncthreads();
  y[threadIdx.x] = s[63 - threadIdx.x];
  s[threadIdx.x] = 0;
}

KERNEL write_after_reads_of_all(int* y) {
  __shared__ int s;
  if (threadIdx.x == 0) s = 5;
  __syncthreads();
  y[threadIdx.x] = s;
  if (threadIdx.x == 1) s = 6;
}

KERNEL two_writes(int* y) { y[threadIdx.x % 16] = threadIdx.x; }

KERNEL shuffle_is_no_fence(int* y) {
  __shared__ int s[32];
  s[threadIdx.x] = threadIdx.x;
  const int zero = __shfl_sync(ALL, 0, 0);
  y[threadIdx.x] = s[31 - threadIdx.x] + zero;
}

KERNEL warp_fence_between_warps(int* y) {
  __shared__ int s[64];
  s[threadIdx.x] = threadIdx.x;
  __syncwarp();
  y[threadIdx.x] = s[63 - threadIdx.x];
}

KERNEL blocks_write_one(int* y) {
  if (threadIdx.x == 0) y[0] = 1;
}

KERNEL block_reads_another(int* y) {
  if (blockIdx.x == 0) y[threadIdx.x] = 1;
  if (blockIdx.x == 1) y[32 + threadIdx.x] = y[threadIdx.x];
}

// One thread a block.
KERNEL block_writes_what_all_read(int* y) {
  y[1 + blockIdx.x] = y[0];
  if (blockIdx.x == 1) y[0] = 1;
}

KERNEL atomic_and_plain(int* y) {
  atomicAdd(&y[0], 1);
  if (threadIdx.x == 5) y[1] = y[0];
}

// From here on nothing is wrong.
KERNEL warp_fence(int* y) {
  __shared__ int s[32];
  s[threadIdx.x] = threadIdx.x;
  __syncwarp();
  y[threadIdx.x] = s[31 - threadIdx.x];
}

// All lanes read; behind the fence one reads again and writes.
KERNEL warp_fence_before_write(int* y) {
  __shared__ int s;
  if (threadIdx.x == 0) s = 1;
  __syncwarp();
  y[threadIdx.x] = s;
  __syncwarp();
  if (threadIdx.x == 0) s += 1;
  __syncwarp();
  y[threadIdx.x] += s;
}

KERNEL barriers_in_a_loop(int* y) {
  __shared__ int s[64];
  int sum = 0;
  for (int i = 0; i < 3; i++) {
    s[threadIdx.x] = threadIdx.x + i;
    __syncthreads();
    sum += s[63 - threadIdx.x];
    __syncthreads();
  }
  y[threadIdx.x] = sum;
}

KERNEL atomics_of_blocks(int* y) { atomicAdd(&y[0], 1); }

KERNEL reads_of_blocks(int* y) { y[1 + blockIdx.x * blockDim.x + threadIdx.x] = y[0]; }

KERNEL in_place(const int* x, int* y) { y[threadIdx.x] = x[threadIdx.x] + 1; }

// Each block writes its sum; the last one adds them up.
__device__ inline void sum_of_all(int* values, int* total) {
  int sum = 0;
  for (unsigned i = 0; i < gridDim.x; i++) sum += values[i];
  *total = sum;
}

// Lets the block arrive; true in all threads of the last one.
__device__ inline bool arrives_last(int* counter) {
  __shared__ int is_last;
  if (threadIdx.x == 0) __threadfence();
  if (threadIdx.x == 0) emulator_arrive(counter);
  if (threadIdx.x == 0) is_last = atomicAdd(counter, 1) + 1 == int(gridDim.x);
  __syncthreads();
  return is_last;
}

KERNEL last_block_sums(int* values, int* counter, int* total) {
  if (threadIdx.x == 1) values[blockIdx.x] = int(blockIdx.x) + 1;
  __syncthreads();
  if (!arrives_last(counter)) return;
  emulator_join(counter);
  if (threadIdx.x == 0) sum_of_all(values, total);
}

KERNEL writes_after_it_arrived(int* values, int* counter, int* total) {
  const bool is_last = arrives_last(counter);
  if (threadIdx.x == 1) values[blockIdx.x] = int(blockIdx.x) + 1;
  __syncthreads();
  if (!is_last) return;
  emulator_join(counter);
  if (threadIdx.x == 0) sum_of_all(values, total);
}

KERNEL arrives_without_a_fence(int* values, int* counter, int* total) {
  __shared__ int is_last;
  if (threadIdx.x == 1) values[blockIdx.x] = int(blockIdx.x) + 1;
  __syncthreads();
  if (threadIdx.x == 0) emulator_arrive(counter);
  if (threadIdx.x == 0) is_last = atomicAdd(counter, 1) + 1 == int(gridDim.x);
  __syncthreads();
  if (!is_last) return;
  emulator_join(counter);
  if (threadIdx.x == 0) sum_of_all(values, total);
}

KERNEL joins_another_counter(int* values, int* counter, int* total) {
  if (threadIdx.x == 1) values[blockIdx.x] = int(blockIdx.x) + 1;
  __syncthreads();
  if (threadIdx.x == 0) __threadfence();
  if (threadIdx.x == 0) emulator_arrive(counter);
  if (blockIdx.x + 1 < gridDim.x) return;
  emulator_join(total);
  __syncthreads();
  if (threadIdx.x == 0) sum_of_all(values, total);
}

// The last block writes what all have read before they arrived.
KERNEL last_block_writes_what_all_read(int* values, int* counter, int* total) {
  const int seen = values[0];
  __syncthreads();
  if (!arrives_last(counter)) return;
  emulator_join(counter);
  if (threadIdx.x == 0) values[0] = *total = seen + 15;
}
