// Threads, barriers, warps: what test_emulator_threads.py runs, right and wrong.
#define KERNEL extern "C" __global__ void
#define ALL 0xffffffffu

KERNEL numbers(int* y) {
  y[blockIdx.x * blockDim.x + threadIdx.x] = 100 * blockIdx.x + threadIdx.x + gridDim.x;
}

KERNEL xor_shuffle(int* y) { y[threadIdx.x] = __shfl_xor_sync(ALL, int(threadIdx.x), 5); }

KERNEL narrow_shuffles(int* y) {
  const int lane = threadIdx.x;
  const int chosen = __shfl_sync(ALL, lane, 1, 8);
  const int down = __shfl_down_sync(ALL, lane, 3, 8);
  const int up = __shfl_up_sync(ALL, lane, 3, 8);
  y[lane] = chosen + 100 * down + 10000 * up;
}

KERNEL half_warps(int* y) {
  const unsigned mask = threadIdx.x < 16 ? 0xffffu : 0xffff0000u;
  int sum = threadIdx.x;
  for (int offset = 8; offset; offset /= 2) sum += __shfl_xor_sync(mask, sum, offset);
  y[threadIdx.x] = sum;
}

KERNEL votes(int* y) {
  const int i = threadIdx.x;
  const int count = __syncthreads_count(i % 3 == 0), all = __syncthreads_and(i < 64),
            any = __syncthreads_or(i == 70);
  const int lane_five = __any_sync(ALL, i == 5), low = __all_sync(ALL, i < 64);
  const int odd = __popc(__ballot_sync(ALL, i & 1));
  y[i] = 10000 * count + 1000 * all + 100 * any + 10 * (odd == 16) + 2 * low + lane_five;
}

KERNEL reversed(int* y) {
  __shared__ int s[64];
  s[threadIdx.x] = threadIdx.x;
  __syncthreads();
  y[threadIdx.x] = s[63 - threadIdx.x];
}

KERNEL histogram(const int* x, int* y, int n) {
  __shared__ int s[4];
  if (threadIdx.x < 4) s[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&s[x[i]], 1);
  __syncthreads();
  if (threadIdx.x < 4) atomicAdd(&y[threadIdx.x], s[threadIdx.x]);
}

KERNEL different_barriers(int* y) {
  if (threadIdx.x < 40) __syncthreads();
  else __syncthreads_or(y[0]);
}

// Not an error: threads that have ended are waited for no longer.
KERNEL barrier_of_some(int* y) {
  if (threadIdx.x < 40) {
    __syncthreads();
    y[threadIdx.x] = 1;
  }
}

KERNEL half_a_shuffle(int* y) {
  if (threadIdx.x < 16) y[threadIdx.x] = __shfl_sync(ALL, 1, 0);
  else __syncthreads();
}

KERNEL shuffle_with_the_ended(int* y) {
  if (threadIdx.x < 16) return;
  y[threadIdx.x] = __shfl_sync(ALL, 1, 0);
}

KERNEL shuffle_outside_its_mask(int* y) { y[threadIdx.x] = __shfl_sync(0xffffu, 1, 0); }

KERNEL shuffle_from_outside_its_mask(int* y) {
  if (threadIdx.x < 16) y[threadIdx.x] = __shfl_sync(0xffffu, 1, 20);
}

KERNEL different_shuffles(int* y) {
  if (threadIdx.x < 16) y[threadIdx.x] = __shfl_sync(ALL, 1, 0);
  else y[threadIdx.x] = __shfl_xor_sync(ALL, 1, 1);
}

KERNEL trap(int* y) {
  if (threadIdx.x == 3) __trap();
  y[threadIdx.x] = 1;
}
