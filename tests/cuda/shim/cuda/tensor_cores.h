// Tensor cores: the lanes of a whole warp hand over their parts of the operands, and each computes
// its part of the result by the instruction's definition (PTX ISA, "Matrix Fragments").
#pragma once
#include <cstring>

#include "../abi.h"
#include "../cuda_fp16.h"
#include "threads.h"

// ldmatrix.x4: lane l reads word l % 4 of row l / 4 of each matrix, whose address another lane
// gave.
template <class Word>
inline void emulator_load_matrices(const unsigned char* row, Word (&out)[4],
                                   emulator::Site site = emulator::Site::here()) {
  const int lane = emulator::lane();
  for (int m = 0; m < 4; m++) {
    const auto from = emulator::exchange(0xffffffffu, uintptr_t(row), 8 * m + lane / 4, site);
    if (from % 16) emulator_trap(site);
    out[m] = reinterpret_cast<const uint32_t*>(from)[lane % 4];
  }
}

// ldmatrix.x4.trans: lane l reads column l / 4 of rows 2 * (l % 4) and the next of each matrix of
// halves.
template <class Word>
inline void emulator_load_matrices_transposed(const unsigned char* row, Word (&out)[4],
                                              emulator::Site site = emulator::Site::here()) {
  const int lane = emulator::lane();
  for (int m = 0; m < 4; m++) {
    uint32_t halves[2];
    for (int i = 0; i < 2; i++) {
      const int source = 8 * m + lane % 4 * 2 + i;
      const auto from = emulator::exchange(0xffffffffu, uintptr_t(row), source, site);
      if (from % 16) emulator_trap(site);
      halves[i] = reinterpret_cast<const uint16_t*>(from)[lane / 4];
    }
    out[m] = halves[0] | halves[1] << 16;
  }
}

namespace emulator {

// What a lane holds of the operands: a of 16 x 32 bytes, b of 32 x 8.
struct ByteOperands {
  int8_t a[4][4], b[2][4];
};

#define CUDA_ON_CPU_UNCHECKED __attribute__((no_sanitize("thread", "alignment"))) inline

// a's byte (row, k) is in lane 4 * (row % 8) + k % 16 / 4, part row / 8 + 2 * (k / 16), byte k % 4.
CUDA_ON_CPU_UNCHECKED int a_byte(unsigned char(*const taken[32]), int row, int k) {
  const auto* own = reinterpret_cast<const ByteOperands*>(taken[4 * (row % 8) + k % 16 / 4]);
  return own->a[row / 8 + 2 * (k / 16)][k % 4];
}

CUDA_ON_CPU_UNCHECKED int b_byte(unsigned char(*const taken[32]), int k, int column) {
  const auto* own = reinterpret_cast<const ByteOperands*>(taken[4 * column + k % 16 / 4]);
  return own->b[k / 16][k % 4];
}

}  // namespace emulator

// mma.m16n8k16 and m16n8k32 of signed bytes.
template <int kBytes, class Word>
CUDA_ON_CPU_UNCHECKED void emulator_multiply_bytes(const Word* a, const Word* b, int (&c)[4],
                                                   emulator::Site site = emulator::Site::here()) {
  emulator::ByteOperands own = {};
  memcpy(own.a, a, kBytes / 4 * sizeof(Word) / 2);
  memcpy(own.b, b, kBytes / 16 * sizeof(Word));
  unsigned char* taken[32];
  emulator_meet_warp(&own, sizeof own, taken, site);
  const int lane = emulator::lane();
  for (int i = 0; i < 4; i++)
    for (int k = 0; k < kBytes; k++)
      c[i] += emulator::a_byte(taken, lane / 4 + i / 2 * 8, k) *
              emulator::b_byte(taken, k, lane % 4 * 2 + i % 2);
}

namespace emulator {

// What a lane holds of the operands: a of 16 x 16 halves, b of 16 x 8.
struct HalfOperands {
  uint16_t a[4][2], b[2][2];
};

// a's half (row, k) is in lane 4 * (row % 8) + k % 8 / 2, part row / 8 + 2 * (k / 8), half k % 2.
CUDA_ON_CPU_UNCHECKED float a_half(unsigned char(*const taken[32]), int row, int k) {
  const auto* own = reinterpret_cast<const HalfOperands*>(taken[4 * (row % 8) + k % 8 / 2]);
  return half_value(own->a[row / 8 + 2 * (k / 8)][k % 2]);
}

CUDA_ON_CPU_UNCHECKED float b_half(unsigned char(*const taken[32]), int k, int column) {
  const auto* own = reinterpret_cast<const HalfOperands*>(taken[4 * column + k % 8 / 2]);
  return half_value(own->b[k / 8][k % 2]);
}

}  // namespace emulator

// mma.m16n8k16 of halves with sums in float32.
template <class Word>
CUDA_ON_CPU_UNCHECKED void emulator_multiply_halves(const Word* a, const Word* b, float (&c)[4],
                                                    emulator::Site site = emulator::Site::here()) {
  emulator::HalfOperands own;
  memcpy(own.a, a, sizeof own.a);
  memcpy(own.b, b, sizeof own.b);
  unsigned char* taken[32];
  emulator_meet_warp(&own, sizeof own, taken, site);
  const int lane = emulator::lane();
  for (int i = 0; i < 4; i++)
    for (int k = 0; k < 16; k++)
      c[i] += emulator::a_half(taken, lane / 4 + i / 2 * 8, k) *
              emulator::b_half(taken, k, lane % 4 * 2 + i % 2);
}
