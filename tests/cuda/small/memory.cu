// Where a kernel may read and write: test_emulator_memory.py.
#define KERNEL extern "C" __global__ void

KERNEL write_at(int* y, int at) {
  if (threadIdx.x == 0) y[at] = 1;
}

KERNEL read_at(const int* x, int* y, int at) {
  if (threadIdx.x == 0) y[0] = x[at];
}

KERNEL read_four_at(const int* x, int* y, int at) {
  if (threadIdx.x == 0) y[0] = ((const int4*)x)[at].w;
}

KERNEL read_misaligned(const unsigned char* x, int* y, int at) {
  if (threadIdx.x == 0) y[0] = *(const int*)(x + at);
}

KERNEL copy_at(const unsigned char* x, int* y, int at) {
  if (threadIdx.x == 0) {
    int value;
    memcpy(&value, x + at, sizeof value);
    y[0] = value;
  }
}

KERNEL through_table(const unsigned long long* table, int* y, int write) {
  int* found = (int*)table[0];
  if (threadIdx.x == 0) y[0] = found[1];
  if (threadIdx.x == 0 && write) found[1] = 0;
}

KERNEL atomic_at(int* y, int at) {
  if (threadIdx.x == 0) atomicAdd(&y[at], 1);
}

KERNEL unset_shared(int* y) {
  __shared__ int s[32];
  if (threadIdx.x > 0) s[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x];
}

KERNEL dynamic_shared(int* y, int set) {
  DYN_SHARED(int, s);
  const int i = threadIdx.x;
  if (i < set) s[i] = i;
  __syncthreads();
  y[i] = s[31 - i];
}

KERNEL shared_is_new_in_each_block(int* y) {
  __shared__ int s;
  if (blockIdx.x == 0) s = 1;
  y[0] = s;
}

KERNEL takes(const float* x, int a, float b, long long c) {}
