// Moves bits of all rows at once, and looks up small tables in a register: what VBMI and GFNI add
// to AVX-512.
//
// Internal linkage here and in all of this folder: no code for these instructions may be linked
// into another file.
#pragma once
#include "../avx512/registers.h"

namespace sharpi::avx512_vbmi {
namespace {
using namespace avx512;

// Makes byte i of every dword the eight bits of that dword from first + i * step on. A byte that
// begins before its dword or ends behind it gets bits of other rows there.
[[gnu::always_inline]] inline Ints bits_from(Ints x, int first, int step) {
  uint64_t places = 0;
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) places |= uint64_t((first + i % 4 * step + i / 4 * 32) & 63) << 8 * i;
  return _mm512_multishift_epi64_epi8(_mm512_set1_epi64(int64_t(places)), x);
}

// Returns table[the low six bits of every byte].
[[gnu::always_inline]] inline Ints look_up(Ints table, Ints x) {
  return _mm512_permutexvar_epi8(x, table);
}

// Returns the seven signs of every byte, from bit kFirst on, with the eighth that makes the number
// of set bits even: each row of the matrix gives a bit, the first row the highest.
template <int kFirst>
[[gnu::always_inline]] inline Ints even_signs(Ints x) {
  constexpr int64_t kMatrix = 0x010204081020407f;
  return _mm512_gf2p8affine_epi64_epi8(x, _mm512_set1_epi64(kMatrix << kFirst), 0);
}

}  // namespace
}  // namespace sharpi::avx512_vbmi
