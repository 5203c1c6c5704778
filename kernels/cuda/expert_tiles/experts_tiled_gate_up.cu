// Computes what experts_grouped_gate_up does, with the same bits, on tensor cores: a block takes 32
// rows of an expert's gate and of its up, and 32 of its items at a time.
#include "expert_gate_up_tile.cuh"
#include "expert_int8_tile.cuh"

namespace sharpi {

template <class Type>
union GateUpMemory {
  TileMemory<Type> tile;
  TileValues values;
};

template <class Type>
__device__ __forceinline__ void experts_tiled_gate_up(const Activations& x, const int* offsets,
                                                      const int* list, const StackedMatrix& gate,
                                                      const StackedMatrix& up, const float* weights,
                                                      const Hidden& hidden, int used, int lane_bits,
                                                      bool is_packed) {
  __shared__ GateUpMemory<Type> memory;
  const int expert = int(blockIdx.y);
  if (!gate.addresses[expert]) return;  // the CPU computes this expert
  const GateUp halves = {matrix_of(gate, expert, hidden.rows), matrix_of(up, expert, hidden.rows),
                         weights};
  const int tile_row = int(threadIdx.x) % kTileRows;
  const int first = min(kWarp * int(blockIdx.x) + tile_row % kWarp, hidden.rows - 1);
  const uint8_t* row = (tile_row < kWarp ? halves.gate : halves.up).weights +
                       first * UnitLayout<Type>::row_bytes(x.columns);
  each_tile(offsets, list, expert, used, is_packed, [&](const Items& items) {
    WarpSums sums;
    multiply_items(memory.tile, row, x, items, lane_bits, sums);
    put_sums(sums, items, memory.values);
    __syncthreads();
    store_items(halves, items, memory.values, hidden);
    __syncthreads();
  });
}

}  // namespace sharpi

#define GATE_UP(Type, type)                                                                        \
  KERNEL __launch_bounds__(256, 2) experts_tiled_gate_up_##type(                                   \
      const uint8_t* x, const int* offsets, const int* items, const uint64_t* gate,                \
      const float* gate_bias, const float* gate_factors, const uint64_t* up, const float* up_bias, \
      const float* up_factors, const float* weights, uint8_t* hidden, int used, int columns,       \
      int rows, int hidden_planes, int activation, int lane_bits, int is_packed) {                 \
    sharpi::experts_tiled_gate_up<sharpi::Type>(                                                   \
        {x, columns, 1}, offsets, items, {gate, gate_bias, gate_factors},                          \
        {up, up_bias, up_factors}, weights,                                                        \
        {hidden, rows, hidden_planes, sharpi::GateKind(activation)}, used, lane_bits,              \
        is_packed != 0);                                                                           \
  }

QUANTISED_TYPES(GATE_UP)
