// Copies experts to the slots that a list names: from their host copies, which may be in host
// memory, or from other slots. Blocks take chunks in turn; with an empty list they do nothing.
#include "common/clock.cuh"
#include "slot_state.cuh"

namespace sharpi {

constexpr int kThreads = 256, kWordsOfThread = 4, kChunk = kThreads * kWordsOfThread * 16;

// One tensor's part of each expert: host_addresses (experts,); the slots lie `stride` bytes apart.
struct Piece {
  const uint64_t* host_addresses;
  uint8_t *slots, *early, *staging;
  int64_t stride, bytes;

  __device__ __forceinline__ int chunks() const { return int((bytes + kChunk - 1) / kChunk); }

  __device__ __forceinline__ uint8_t* at(const Places& places, int place) const {
    if (place < places.experts) return (uint8_t*)host_addresses[place];
    if (place < places.early_slot(0)) return slots + (place - places.slot(0)) * stride;
    if (place < places.staging_slot(0)) return early + (place - places.early_slot(0)) * stride;
    return staging + (place - places.staging_slot(0)) * stride;
  }
};

// A thread issues all its reads before its first write, because the latency of the bus is long.
template <class Word>
__device__ __forceinline__ void copy_words(const uint8_t* from, uint8_t* to, int bytes) {
  const int words = bytes / int(sizeof(Word));
  const Word* source = (const Word*)from;
  for (int base = 0; base < words; base += kWordsOfThread * kThreads) {
    Word word[kWordsOfThread];
#pragma unroll
    for (int i = 0; i < kWordsOfThread; i++) {
      const int at = base + i * kThreads + int(threadIdx.x);
      if (at < words) word[i] = source[at];
    }
#pragma unroll
    for (int i = 0; i < kWordsOfThread; i++) {
      const int at = base + i * kThreads + int(threadIdx.x);
      if (at < words) ((Word*)to)[at] = word[i];
    }
  }
}

// Copies whole words where both sides are aligned alike, and the bytes before and after them one by
// one.
template <class Word>
__device__ __forceinline__ void copy_aligned(const uint8_t* from, uint8_t* to, int bytes) {
  const int before = min(int(-size_t(to) & (sizeof(Word) - 1)), bytes);
  const int whole = (bytes - before) / int(sizeof(Word)) * int(sizeof(Word));
  copy_words<Word>(from + before, to + before, whole);
  const int t = threadIdx.x, after = before + whole + t;
  if (t < before) to[t] = from[t];
  if (after < bytes) to[after] = from[after];
}

__device__ __forceinline__ void copy_bytes(const uint8_t* from, uint8_t* to, int bytes) {
  const unsigned apart = unsigned(size_t(from) ^ size_t(to));
  if (apart % 16 == 0) copy_aligned<uint4>(from, to, bytes);
  else if (apart % 4 == 0) copy_aligned<uint32_t>(from, to, bytes);
  else if (apart % 2 == 0) copy_aligned<uint16_t>(from, to, bytes);
  else copy_aligned<uint8_t>(from, to, bytes);
}

__device__ __forceinline__ void copy_chunk(const Piece& piece, const Places& places, int target,
                                           int source, int chunk) {
  const int64_t first = int64_t(chunk) * kChunk;
  const int bytes = int(min(int64_t(kChunk), piece.bytes - first));
  copy_bytes(piece.at(places, source) + first, piece.at(places, target) + first, bytes);
}

// Lets the last block that has copied its part say when that was: it adds the time since then to
// `waited`, or sets it without `since`. `copied` counts the blocks.
__device__ __forceinline__ void end_wait(int* copied, const int64_t* since, int64_t* waited) {
  __syncthreads();
  if (threadIdx.x || atomicAdd(copied, 1) + 1 < int(gridDim.x)) return;
  atomicExch(copied, 0);
  const int64_t now = nanoseconds();
  *waited = since ? *waited + now - *since : now;
}

}  // namespace sharpi

// loads: as laid out in slot_state.cuh. Up to three pieces; absent ones have 0 bytes. copied,
// since, waited: see end_wait; without `waited` nothing is measured. Blocks of 256 threads; any
// grid.
KERNEL __launch_bounds__(256)
    gather_experts(const int* loads, const uint64_t* host_addresses_a, uint8_t* slots_a,
                   uint8_t* early_a, uint8_t* staging_a, int64_t stride_a, int64_t bytes_a,
                   const uint64_t* host_addresses_b, uint8_t* slots_b, uint8_t* early_b,
                   uint8_t* staging_b, int64_t stride_b, int64_t bytes_b,
                   const uint64_t* host_addresses_c, uint8_t* slots_c, uint8_t* early_c,
                   uint8_t* staging_c, int64_t stride_c, int64_t bytes_c, int experts,
                   int num_slots, int num_early, int* copied, const int64_t* since,
                   int64_t* waited) {
  using namespace sharpi;
  const Piece a = {host_addresses_a, slots_a, early_a, staging_a, stride_a, bytes_a};
  const Piece b = {host_addresses_b, slots_b, early_b, staging_b, stride_b, bytes_b};
  const Piece c = {host_addresses_c, slots_c, early_c, staging_c, stride_c, bytes_c};
  const Places places = {experts, num_slots, num_early, 0};
  const int in_a = a.chunks(), in_b = b.chunks(), in_all = in_a + in_b + c.chunks();
  const int64_t num_chunks = int64_t(loads[0]) * in_all;
  for (int64_t i = blockIdx.x; i < num_chunks; i += gridDim.x) {
    const int4 load = ((const int4*)loads)[1 + i / in_all];
    const int chunk = int(i % in_all);
    if (chunk < in_a) copy_chunk(a, places, load.y, load.z, chunk);
    else if (chunk < in_a + in_b) copy_chunk(b, places, load.y, load.z, chunk - in_a);
    else copy_chunk(c, places, load.y, load.z, chunk - in_a - in_b);
  }
  if (waited && num_chunks) end_wait(copied, since, waited);
}
