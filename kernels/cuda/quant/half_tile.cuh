// Products of 64 rows of F16 or BF16 weights with 32 rows of f16, by a block on tensor cores.
//
// A block has 64 columns of its rows in shared memory, and those of the next step in registers on
// their way there. Each sum is made in float32 over 16 columns after the other, from the first on.
// So its bits depend neither on its position in the tile nor on the other items.
//
// Rows have a multiple of 8 columns, so that they begin at multiples of 16 bytes; columns behind
// the last are zeros.
#pragma once
#include "common/halves.cuh"
#include "common/tensor_cores.cuh"
#include "float_types.cuh"
#include "tile_position.cuh"

namespace sharpi {

constexpr int kHalfColumns = 64;                        // of a step
constexpr int kHalfTileStride = 2 * kHalfColumns + 16;  // so that eight rows lie in different banks
constexpr int kPieces = kHalfColumns / 8;               // pieces of 16 bytes, one for each thread
constexpr int kRowsAtATime = kTileThreads / kPieces;    // rows of which the threads take a piece

static_assert(kRowsAtATime == kTileItems && 2 * kRowsAtATime == kTileRows);

// One step in shared memory, in f16.
struct HalfTileStep {
  alignas(16) uint8_t weights[kTileRows][kHalfTileStride];
  alignas(16) uint8_t x[kTileItems][kHalfTileStride];
};

// A block's shared memory. One step is filled while the other is multiplied.
struct HalfTileMemory {
  HalfTileStep steps[2];
};

// The rows of which a thread takes the piece threadIdx.x % 8 in each step: rows threadIdx.x / 8 and
// 32 more of the tile's weights, and item threadIdx.x / 8.
struct HalfTileSource {
  const uint8_t* weights[2];
  const uint8_t* x;
  int columns;

  static __device__ __forceinline__ int row() { return int(threadIdx.x) / kPieces; }
};

__device__ __forceinline__ uint4 as_halves(F16, uint4 piece) { return piece; }

// Exact from 2^-17 up to 65,504: bf16 has 8 bits, and f16 multiples of 2^-24.
__device__ __forceinline__ uint4 as_halves(BF16, uint4 piece) {
  return make_uint4(
      two_halves(pair_of_brain_floats(piece.x)), two_halves(pair_of_brain_floats(piece.y)),
      two_halves(pair_of_brain_floats(piece.z)), two_halves(pair_of_brain_floats(piece.w)));
}

// A thread's part of a step, on its way to shared memory.
template <class Type>
struct HalfTilePieces {
  uint4 weights[2], x;

  __device__ __forceinline__ void load(const HalfTileSource& from, int column) {
    column += int(threadIdx.x) % kPieces * 8;
    weights[0] = weights[1] = x = make_uint4(0u, 0u, 0u, 0u);
    if (column >= from.columns) return;
#pragma unroll
    for (int i = 0; i < 2; i++) weights[i] = __ldg((const uint4*)(from.weights[i] + 2 * column));
    x = __ldg((const uint4*)(from.x + 2 * column));
  }
  __device__ __forceinline__ void put(HalfTileStep& step) const {
    const int row = HalfTileSource::row(), at = int(threadIdx.x) % kPieces * 16;
#pragma unroll
    for (int i = 0; i < 2; i++)
      *(uint4*)(step.weights[row + i * kRowsAtATime] + at) = as_halves(Type(), weights[i]);
    *(uint4*)(step.x[row] + at) = x;
  }
};

// Adds the products over a step's columns to the warp's sums.
__device__ __forceinline__ void multiply_step(const HalfTileStep& step, const TilePosition& at,
                                              WarpSums& sums) {
  const int lane = int(threadIdx.x) % kWarp;
  const uint8_t* row = step.weights[at.first_row + lane % 16] + lane / 16 * 16;
  const uint8_t* item = step.x[at.first_item + lane % 8 + lane / 16 * 8] + lane / 8 % 2 * 16;
#pragma unroll
  for (int c = 0; c < kHalfColumns; c += 16) {
    uint32_t a[4], b[4];
    load_matrices(row + 2 * c, a);
    load_matrices(item + 2 * c, b);
    multiply_halves(a, b[0], b[1], sums.sum[0]);
    multiply_halves(a, b[2], b[3], sums.sum[1]);
  }
}

// Computes the sums of a tile. All threads of a block of kTileThreads call it; `has_items` says if
// the warp's items exist. A barrier is behind the last access to shared memory.
template <class Type>
__device__ __forceinline__ void multiply_half_tile(HalfTileMemory& memory,
                                                   const HalfTileSource& from, bool has_items,
                                                   WarpSums& sums) {
  const TilePosition at = TilePosition::here();
  HalfTilePieces<Type> next;
  next.load(from, 0);
  next.put(memory.steps[0]);
  sums.clear();
  int now = 0;
#pragma unroll 1
  for (int column = kHalfColumns; column - kHalfColumns < from.columns; column += kHalfColumns) {
    const bool has_next = column < from.columns;
    __syncthreads();
    if (has_next) next.load(from, column);
    if (has_items) multiply_step(memory.steps[now], at, sums);
    now = 1 - now;
    if (has_next) next.put(memory.steps[now]);
  }
  __syncthreads();
}

}  // namespace sharpi
