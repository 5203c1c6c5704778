// First half of a feed-forward: 32 rows of act(gate x + bias) * (up x + bias) for some items of one
// expert, which one block computes together so that it can quantise them.
#pragma once
#include "common/gated.cuh"
#include "expert_items.cuh"

namespace sharpi {

// Where the items' hidden values go: `planes` of activation rows or, with no planes, floats (items,
// rows).
struct Hidden {
  uint8_t* memory;
  int rows;
  int planes;
  GateKind kind;
};

// Stores 32 rows of an item, from row 32 * tile on, by one warp. All its lanes must call it.
__device__ __forceinline__ void store_hidden(const Hidden& hidden, int item, int tile,
                                             float value) {
  if (hidden.planes > 0)
    return quantise_32(value, hidden.memory, item, hidden.rows, hidden.planes, tile);
  const int row = kWarp * tile + int(threadIdx.x) % kWarp;
  if (row < hidden.rows) ((float*)hidden.memory)[size_t(item) * hidden.rows + row] = value;
}

struct GateUp {
  ExpertMatrix gate, up;
  const float* weights;  // of the inputs, (items,); or null
};

template <int kMany>
struct GateUpTile {
  float gate[kMany][kWarp];
  float up[kMany][kWarp];
};

template <class Dot, int kMany>
__device__ __forceinline__ void gate_up_products(const GateUp& halves, const Activations& x,
                                                 const Items& items, int lane_bits,
                                                 GateUpTile<kMany>& tile) {
  const LaneGroup at = lane_group(lane_bits);
  const size_t row_bytes = Dot::row_bytes(x.columns);
  int tokens[kMany];
  rows_of_items(items, tokens);
  for (int r = at.group; r < kWarp; r += at.groups) {
    const int row = min(kWarp * int(blockIdx.x) + r, halves.gate.rows - 1);
    const uint8_t* rows[2] = {halves.gate.weights + row * row_bytes,
                              halves.up.weights + row * row_bytes};
    float sum[kMany][2];
    dot_rows<Dot>(at, rows, x, tokens, items.count, sum);
    if (at.lane != 0) continue;
#pragma unroll
    for (int i = 0; i < kMany; i++) {
      if (i >= items.count) break;
      const int item = items.item(i);
      tile.gate[i][r] = item_value(halves.gate, halves.weights, item, row, sum[i][0]);
      tile.up[i][r] = item_value(halves.up, halves.weights, item, row, sum[i][1]);
    }
  }
}

// Blocks consist of whole warps; the number of lane groups divides 32 or is larger than 32.
template <class Dot, int kMany>
__device__ __forceinline__ void gate_up(const GateUp& halves, const Activations& x,
                                        const Items& items, int lane_bits, const Hidden& hidden) {
  __shared__ GateUpTile<kMany> tile;
  gate_up_products<Dot>(halves, x, items, lane_bits, tile);
  __syncthreads();
  const int lane = int(threadIdx.x) % kWarp, warps = int(blockDim.x) / kWarp;
  for (int i = int(threadIdx.x) / kWarp; i < items.count; i += warps) {
    const float value = gated(hidden.kind, tile.gate[i][lane], tile.up[i][lane]);
    store_hidden(hidden, items.result_row(i), int(blockIdx.x), value);
  }
}

}  // namespace sharpi
