// Matrix products of a warp on tensor cores, with operands from shared memory.
//
// Of a 16 x 8 result, lane l holds in c[0], c[1] columns 2 * (l % 4) and the next one of row l / 4,
// and in c[2], c[3] the same columns of row l / 4 + 8. All lanes call these functions together.
#pragma once
#include "types.cuh"

namespace sharpi {

// Loads four matrices of 8 rows of 16 bytes; lane l gives the address of row l % 8 of matrix l / 8,
// a multiple of 16, and gets in out[m] bytes 4 * (l % 4)... of row l / 4 of matrix m.
__device__ __forceinline__ void load_matrices(const uint8_t* row, uint32_t (&out)[4]) {
#ifdef CUDA_ON_CPU
  emulator_load_matrices(row, out);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(uint32_t(__cvta_generic_to_shared(row)))
               : "memory");
#endif
}

// Loads four matrices of 8 x 8 halves as above, but transposed: the lane gets column l / 4 of rows
// 2 * (l % 4) and the next.
__device__ __forceinline__ void load_matrices_transposed(const uint8_t* row, uint32_t (&out)[4]) {
#ifdef CUDA_ON_CPU
  emulator_load_matrices_transposed(row, out);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(uint32_t(__cvta_generic_to_shared(row)))
               : "memory");
#endif
}

// Adds to c a product of 16 rows with 8 columns over 16 halves. a: halves 2 * (l % 4) and the next
// of rows l / 4 and l / 4 + 8, then those 8 further on; b0, b1: the same halves of column l / 4.
__device__ __forceinline__ void multiply_halves(const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                                float (&c)[4]) {
#ifdef CUDA_ON_CPU
  const uint32_t b[2] = {b0, b1};
  emulator_multiply_halves(a, b, c);
#elif __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(b0));
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}

// Adds to c a product of 16 rows with 8 columns over 16 signed bytes. a: rows l / 4 and l / 4 + 8,
// bytes 4 * (l % 4)...; b: the same bytes of column l / 4.
__device__ __forceinline__ void multiply_16_bytes(uint32_t a0, uint32_t a1, uint32_t b,
                                                  int (&c)[4]) {
#ifdef CUDA_ON_CPU
  const uint32_t a[2] = {a0, a1};
  emulator_multiply_bytes<16>(a, &b, c);
#elif __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
      "{%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(b));
#else
  asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
      : "+r"(c[0]), "+r"(c[1])
      : "r"(a0), "r"(b));
  asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
      : "+r"(c[2]), "+r"(c[3])
      : "r"(a1), "r"(b));
#endif
}

// Does the same over 32 bytes: a[2], a[3] and b1 are bytes 16 + 4 * (l % 4)...
__device__ __forceinline__ void multiply_32_bytes(const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                                  int (&c)[4]) {
#ifdef CUDA_ON_CPU
  const uint32_t b[2] = {b0, b1};
  emulator_multiply_bytes<32>(a, b, c);
#elif __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  multiply_16_bytes(a[0], a[1], b0, c);
  multiply_16_bytes(a[2], a[3], b1, c);
#endif
}

}  // namespace sharpi
