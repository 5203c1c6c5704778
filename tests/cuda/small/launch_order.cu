// Kernels of a programmatic launch, right and wrong: test_emulator_launches.py.
#define KERNEL extern "C" __global__ void

KERNEL waits_first(int* y, const int* x) {
  emulator_wait_for_last_launch();
  y[threadIdx.x] = x[threadIdx.x];
}

KERNEL reads_first(int* y, const int* x) {
  const int early = x[threadIdx.x];
  emulator_wait_for_last_launch();
  y[threadIdx.x] = early;
}

KERNEL leaves_first(int* y, const int* x) {
  if (threadIdx.x >= 16) return;
  emulator_wait_for_last_launch();
  y[threadIdx.x] = x[threadIdx.x];
}
