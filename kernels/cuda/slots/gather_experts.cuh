// Copies experts to the slots that a list names: from their host copies, which may be in host
// memory, or from other slots. Blocks take chunks in turn; with an empty list they do nothing.
#pragma once
#include "slot_state.cuh"

namespace sharpi {

constexpr int kWordsOfThread = 4, kChunk = 16 << 10;

// One tensor's part of each expert: host_addresses (experts,); the slots lie `stride` bytes apart.
struct Piece {
  const uint64_t* host_addresses;
  uint8_t *slots, *early, *staging;
  int64_t stride, bytes;

  __device__ __forceinline__ int chunks() const { return int((bytes + kChunk - 1) / kChunk); }

  __device__ __forceinline__ uint8_t* at(const Locations& locations, int location) const {
    if (location < locations.experts) return (uint8_t*)host_addresses[location];
    if (location < locations.early_slot(0)) return slots + (location - locations.slot(0)) * stride;
    if (location < locations.staging_slot(0))
      return early + (location - locations.early_slot(0)) * stride;
    return staging + (location - locations.staging_slot(0)) * stride;
  }
};

// A thread issues all its reads before its first write, because the latency of the bus is long.
template <class Word>
__device__ __forceinline__ void copy_words(const uint8_t* from, uint8_t* to, int bytes,
                                           int threads) {
  const int words = bytes / int(sizeof(Word));
  const Word* source = (const Word*)from;
  for (int base = 0; base < words; base += kWordsOfThread * threads) {
    Word word[kWordsOfThread];
#pragma unroll
    for (int i = 0; i < kWordsOfThread; i++) {
      const int at = base + i * threads + int(threadIdx.x);
      if (at < words) word[i] = source[at];
    }
#pragma unroll
    for (int i = 0; i < kWordsOfThread; i++) {
      const int at = base + i * threads + int(threadIdx.x);
      if (at < words) ((Word*)to)[at] = word[i];
    }
  }
}

// Copies whole words where both sides are aligned alike, and the bytes before and after them one by
// one.
template <class Word>
__device__ __forceinline__ void copy_aligned(const uint8_t* from, uint8_t* to, int bytes,
                                             int threads) {
  const int before = min(int(-size_t(to) & (sizeof(Word) - 1)), bytes);
  const int whole = (bytes - before) / int(sizeof(Word)) * int(sizeof(Word));
  copy_words<Word>(from + before, to + before, whole, threads);
  const int t = threadIdx.x, after = before + whole + t;
  if (t < before) to[t] = from[t];
  if (after < bytes) to[after] = from[after];
}

__device__ __forceinline__ void copy_bytes(const uint8_t* from, uint8_t* to, int bytes,
                                           int threads) {
  const unsigned apart = unsigned(size_t(from) ^ size_t(to));
  if (apart % 16 == 0) copy_aligned<uint4>(from, to, bytes, threads);
  else if (apart % 4 == 0) copy_aligned<uint32_t>(from, to, bytes, threads);
  else if (apart % 2 == 0) copy_aligned<uint16_t>(from, to, bytes, threads);
  else copy_aligned<uint8_t>(from, to, bytes, threads);
}

__device__ __forceinline__ void copy_chunk(const Piece& piece, const Locations& locations,
                                           int target, int source, int chunk, int threads) {
  const int64_t first = int64_t(chunk) * kChunk;
  const int bytes = int(min(int64_t(kChunk), piece.bytes - first));
  copy_bytes(piece.at(locations, source) + first, piece.at(locations, target) + first, bytes,
             threads);
}

// The copies of a list, which is laid out as in slot_state.cuh. Up to three pieces; absent ones
// have 0 bytes.
struct Gather {
  const int* loads;
  Piece a, b, c;
  Locations locations;
  int threads;  // of a block

  __device__ __forceinline__ int count() const { return loads[0]; }

  __device__ __forceinline__ int4 load(int64_t i) const { return ((const int4*)loads)[1 + i]; }

  // Copies the chunks that fall to a block of so many.
  __device__ __forceinline__ void copy(int block, int blocks) const {
    const int in_a = a.chunks(), in_b = b.chunks(), in_all = in_a + in_b + c.chunks();
    const int64_t num_chunks = int64_t(count()) * in_all;
    for (int64_t i = block; i < num_chunks; i += blocks) {
      const int4 each = load(i / in_all);
      const int chunk = int(i % in_all);
      if (chunk < in_a) copy_chunk(a, locations, each.y, each.z, chunk, threads);
      else if (chunk < in_a + in_b) copy_chunk(b, locations, each.y, each.z, chunk - in_a, threads);
      else copy_chunk(c, locations, each.y, each.z, chunk - in_a - in_b, threads);
    }
  }
};

}  // namespace sharpi
