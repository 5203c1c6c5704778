// Intrinsics, element by element: test_emulator_numbers.py.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define KERNEL extern "C" __global__ void

__device__ inline int place() { return blockIdx.x * blockDim.x + threadIdx.x; }

KERNEL half_to_float(const unsigned short* x, float* y) {
  const int i = place();
  y[i] = __half2float(__ushort_as_half(x[i]));
}

KERNEL float_to_half(const float* x, unsigned short* y) {
  const int i = place();
  y[i] = __half_as_ushort(__float2half_rn(x[i]));
}

KERNEL float_to_bfloat16(const float* x, unsigned short* y) {
  const int i = place();
  y[i] = __bfloat16_as_ushort(__float2bfloat16_rn(x[i]));
}

KERNEL bfloat16_to_float(const unsigned short* x, float* y) {
  const int i = place();
  y[i] = __bfloat162float(__ushort_as_bfloat16(x[i]));
}

KERNEL to_nearest_int(const float* x, int* y) {
  const int i = place();
  y[i] = __float2int_rn(x[i]);
}

KERNEL clock_now(long long* y) { y[place()] = emulator_nanoseconds(); }

// y: (7, n) for n pairs of x
KERNEL integers(const unsigned* x, unsigned* y, int n) {
  const int i = place();
  const unsigned a = x[2 * i], b = x[2 * i + 1];
  y[i] = __dp4a(int(a), int(b), -3);
  y[n + i] = __byte_perm(a, b, 0xb260);
  y[2 * n + i] = __funnelshift_r(a, b, 11);
  y[3 * n + i] = __funnelshift_l(a, b, 11);
  y[4 * n + i] = __vsubss4(a, b);
  y[5 * n + i] = __funnelshift_rc(a, b, 11);
  y[6 * n + i] = __funnelshift_rc(a, b, 32);
}
