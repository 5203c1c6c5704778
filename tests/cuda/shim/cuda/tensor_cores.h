// Tensor cores: the lanes of a whole warp hand over their parts of the operands, and each gets its
// part of the result.
#pragma once
#include "../abi.h"
#include "threads.h"

namespace emulator {

// Takes the addresses of rows, multiples of 16, that the lanes `sources` give.
template <int kCount>
void exchange_rows(const unsigned char* row, const void* (&rows)[kCount],
                   const int (&sources)[kCount], Site site) {
  emulator_exchange_addresses(row, rows, sources, kCount, site);
  for (const void* each : rows)
    if (uintptr_t(each) % 16) emulator_trap(site);
}

}  // namespace emulator

// ldmatrix.x4: lane l reads word l % 4 of row l / 4 of each matrix, whose address another lane
// gave.
template <class Word>
inline void emulator_load_matrices(const unsigned char* row, Word (&out)[4],
                                   emulator::Site site = emulator::Site::here()) {
  const int lane = emulator::lane();
  const int sources[4] = {lane / 4, 8 + lane / 4, 16 + lane / 4, 24 + lane / 4};
  const void* rows[4];
  emulator::exchange_rows(row, rows, sources, site);
  for (int m = 0; m < 4; m++) out[m] = static_cast<const uint32_t*>(rows[m])[lane % 4];
}

// ldmatrix.x4.trans: lane l reads column l / 4 of rows 2 * (l % 4) and the next of each matrix of
// halves.
template <class Word>
inline void emulator_load_matrices_transposed(const unsigned char* row, Word (&out)[4],
                                              emulator::Site site = emulator::Site::here()) {
  const int lane = emulator::lane();
  int sources[8];
  for (int i = 0; i < 8; i++) sources[i] = i / 2 * 8 + lane % 4 * 2 + i % 2;
  const void* rows[8];
  emulator::exchange_rows(row, rows, sources, site);
  const auto half = [&](int i) {
    return uint32_t(static_cast<const uint16_t*>(rows[i])[lane / 4]);
  };
  for (int m = 0; m < 4; m++) out[m] = half(2 * m) | half(2 * m + 1) << 16;
}

// mma.m16n8k16 and m16n8k32 of signed bytes.
template <int kBytes, class Word>
inline void emulator_multiply_bytes(const Word* a, const Word* b, int (&c)[4],
                                    emulator::Site site = emulator::Site::here()) {
  emulator_add_byte_products(a, b, kBytes, c, site);
}

// mma.m16n8k16 of halves with sums in float32.
template <class Word>
inline void emulator_multiply_halves(const Word* a, const Word* b, float (&c)[4],
                                     emulator::Site site = emulator::Site::here()) {
  emulator_add_half_products(a, b, c, site);
}
