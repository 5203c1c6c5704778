// Computes what experts_grouped_gate_up does for F16 and BF16 weights, by activations in f16 on
// tensor cores: a block takes 32 rows of an expert's gate and of its up, and 32 of its items at a
// time.
#include "expert_gate_up_tile.cuh"
#include "expert_half_tile.cuh"

namespace sharpi {

union GateUpMemory {
  HalfTileMemory tile;
  TileValues values;
};

template <class Type>
__device__ __forceinline__ void experts_f16_gate_up(const F16Rows& x, const int* offsets,
                                                    const int* list, const StackedMatrix& gate,
                                                    const StackedMatrix& up, const float* weights,
                                                    const Hidden& hidden, int used,
                                                    bool is_packed) {
  __shared__ GateUpMemory memory;
  const int expert = int(blockIdx.y);
  if (!gate.addresses[expert]) return;  // the CPU computes this expert
  const int row = min(kWarp * int(blockIdx.x) + HalfTileSource::row(), hidden.rows - 1);
  const uint8_t* own[2] = {(const uint8_t*)gate.addresses[expert] + row * x.row_bytes(),
                           (const uint8_t*)up.addresses[expert] + row * x.row_bytes()};
  each_tile(offsets, list, expert, used, is_packed, [&](const Items& items) {
    WarpSums sums;
    multiply_items<Type>(memory.tile, own, x, items, sums);
    put_sums(sums, items, memory.values);
    __syncthreads();
    // Not before the sums, whose loop needs the registers.
    const GateUp halves = {matrix_of(gate, expert, hidden.rows), matrix_of(up, expert, hidden.rows),
                           weights};
    store_items(halves, items, memory.values, hidden);
    __syncthreads();
  });
}

}  // namespace sharpi

#define GATE_UP(Type, type)                                                                        \
  KERNEL __launch_bounds__(256, 3) experts_f16_gate_up_##type(                                     \
      const uint8_t* x, const float* scales, const int* offsets, const int* items,                 \
      const uint64_t* gate, const float* gate_bias, const float* gate_factors, const uint64_t* up, \
      const float* up_bias, const float* up_factors, const float* weights, uint8_t* hidden,        \
      int used, int columns, int rows, int hidden_planes, int activation, int is_packed) {         \
    sharpi::experts_f16_gate_up<sharpi::Type>(                                                     \
        {x, scales, columns}, offsets, items, {gate, gate_bias, gate_factors},                     \
        {up, up_bias, up_factors}, weights,                                                        \
        {hidden, rows, hidden_planes, sharpi::GateKind(activation)}, used, is_packed != 0);        \
  }

GATE_UP(F16, f16)
GATE_UP(BF16, bf16)
