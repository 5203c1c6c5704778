// Loads whole words of weights from addresses that are not aligned to words.
//
// Each loaded word has at least one byte that is asked for. Tensors begin at multiples of 16, so
// nothing before a tensor is read, and at most three bytes after it: the rest of its last word,
// which can be read because it lies in the same memory page as that byte.
#pragma once
#include "common/types.cuh"

namespace sharpi {

__device__ __forceinline__ float half_bits(uint32_t bits) {
  return __half2float(__ushort_as_half((unsigned short)bits));
}

__device__ __forceinline__ float load_half(const uint8_t* p) {
  return half_bits(__ldg((const uint16_t*)p));
}

__device__ __forceinline__ uint32_t load_word(const uint8_t* p) {
  return __ldg((const uint32_t*)p);
}

// Loads 4 * kWords bytes from an even address: the words around them and the last two bytes,
// shifted into place.
template <int kWords>
__device__ __forceinline__ void load_words_at_2(const uint8_t* p, uint32_t (&out)[kWords]) {
  const int past = int(size_t(p) & 2);
  uint32_t next = load_word(p - past);
  const uint32_t last = __ldg((const uint16_t*)(p + 4 * kWords - 2));
  const uint32_t order = past ? 0x5432 : 0x3210;
#pragma unroll
  for (int w = 0; w < kWords; w++) {
    const uint32_t word = next;
    next = w + 1 < kWords ? load_word(p - past + 4 * (w + 1)) : last;
    out[w] = __byte_perm(word, next, order);
  }
}

// Loads a byte and the 4 * kWords bytes after it, from any address. They always touch kWords + 1
// words, which are shifted into place. Returns the byte.
template <int kWords>
__device__ __forceinline__ uint32_t load_byte_and_words(const uint8_t* p, uint32_t (&out)[kWords]) {
  const int past = int(size_t(p) & 3);
  uint32_t next = load_word(p - past);
  const uint32_t first = __byte_perm(next, 0, 0x4440 + past);
#pragma unroll
  for (int w = 0; w < kWords; w++) {
    const uint32_t word = next;
    next = load_word(p - past + 4 * (w + 1));
    out[w] = __funnelshift_rc(word, next, 8 * past + 8);
  }
  return first;
}

}  // namespace sharpi
