// ldmatrix and mma.sync: what test_emulator_tensor_cores.py runs, right and wrong.
#define KERNEL extern "C" __global__ void

// The fragments of rows of a (16, columns) and b (8, columns), as the PTX manual places them.
template <int kColumns>
__device__ void multiply(int* y, const unsigned* a, const unsigned* b) {
  const int lane = threadIdx.x, row = lane / 4, word = lane % 4, words = kColumns / 4;
  unsigned own_a[kColumns / 8], own_b[kColumns / 16];
  for (int i = 0; i < kColumns / 8; i++) own_a[i] = a[(row + i % 2 * 8) * words + word + i / 2 * 4];
  for (int i = 0; i < kColumns / 16; i++) own_b[i] = b[row * words + word + 4 * i];
  int c[4];
  for (int i = 0; i < 4; i++) c[i] = y[(row + i / 2 * 8) * 8 + 2 * word + i % 2];
  emulator_multiply_bytes<kColumns>(own_a, own_b, c);
  for (int i = 0; i < 4; i++) y[(row + i / 2 * 8) * 8 + 2 * word + i % 2] = c[i];
}

KERNEL multiply_16(int* y, const unsigned* a, const unsigned* b) { multiply<16>(y, a, b); }
KERNEL multiply_32(int* y, const unsigned* a, const unsigned* b) { multiply<32>(y, a, b); }

// The same of halves, a (16, 16) and b (8, 16), two of which are in a word.
KERNEL multiply_halves(float* y, const unsigned* a, const unsigned* b) {
  const int lane = threadIdx.x, row = lane / 4, word = lane % 4;
  unsigned own_a[4], own_b[2];
  for (int i = 0; i < 4; i++) own_a[i] = a[(row + i % 2 * 8) * 8 + word + i / 2 * 4];
  for (int i = 0; i < 2; i++) own_b[i] = b[row * 8 + word + 4 * i];
  float c[4];
  for (int i = 0; i < 4; i++) c[i] = y[(row + i / 2 * 8) * 8 + 2 * word + i % 2];
  emulator_multiply_halves(own_a, own_b, c);
  for (int i = 0; i < 4; i++) y[(row + i / 2 * 8) * 8 + 2 * word + i % 2] = c[i];
}

__device__ void load_rows(int* y, const int* x, int offset) {
  unsigned words[4];
  emulator_load_matrices((const unsigned char*)(x + 4 * threadIdx.x + offset), words);
  for (int m = 0; m < 4; m++) y[4 * threadIdx.x + m] = int(words[m]);
}

KERNEL load_transposed(int* y, const int* x) {
  unsigned words[4];
  emulator_load_matrices_transposed((const unsigned char*)(x + 4 * threadIdx.x), words);
  for (int m = 0; m < 4; m++) y[4 * threadIdx.x + m] = int(words[m]);
}

KERNEL load(int* y, const int* x) { load_rows(y, x, 0); }
KERNEL load_unaligned(int* y, const int* x) { load_rows(y, x, 1); }
KERNEL load_of_half_a_warp(int* y, const int* x) {
  if (threadIdx.x < 16) load_rows(y, x, 0);
}
