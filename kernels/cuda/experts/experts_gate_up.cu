// Computes act(gate x + bias) * (up x + bias) of each item with its expert: a block takes 32 rows
// of an item.
#include "common/launch_order.cuh"
#include "expert_gate_up.cuh"

namespace sharpi {

template <class Type>
using OneDot = OneTokenDot<Type, kInGateUp>;

template <class Dot>
__device__ __forceinline__ void experts_gate_up(const Activations& x, const int* ids,
                                                const StackedMatrix& gate, const StackedMatrix& up,
                                                const float* weights, const Hidden& hidden,
                                                int used, int lane_bits) {
  const int item = int(blockIdx.y), expert = expert_of(ids, item);
  const GateUp halves = {matrix_of(gate, expert, hidden.rows), matrix_of(up, expert, hidden.rows),
                         weights};
  if (!halves.gate.weights) return;  // the CPU computes this item
  gate_up<Dot, 1>(halves, x, {nullptr, item, 1, used}, lane_bits, hidden);
}

}  // namespace sharpi

#define GATE_UP(entry, Dot)                                                                        \
  KERNEL __launch_bounds__(256, 2)                                                                 \
      entry(const uint8_t* x, const int* ids, const uint64_t* gate, const float* gate_bias,        \
            const float* gate_factors, const uint64_t* up, const float* up_bias,                   \
            const float* up_factors, const float* weights, uint8_t* hidden, int used, int columns, \
            int rows, int planes, int hidden_planes, int activation, int lane_bits) {              \
    sharpi::wait_for_last_launch();                                                                \
    sharpi::experts_gate_up<sharpi::Dot>(                                                          \
        {x, columns, planes}, ids, {gate, gate_bias, gate_factors}, {up, up_bias, up_factors},     \
        weights, {hidden, rows, hidden_planes, sharpi::GateKind(activation)}, used, lane_bits);    \
  }
#define GATE_UP_QUANTISED(Type, type)                   \
  GATE_UP(experts_gate_up_##type, OneDot<sharpi::Type>) \
  GATE_UP(experts_gate_up_exact_##type, ExactDot<sharpi::Type>)
#define GATE_UP_FLOAT(Type, type) GATE_UP(experts_gate_up_exact_##type, FloatDot<sharpi::Type>)

QUANTISED_TYPES(GATE_UP_QUANTISED)
FLOAT_TYPES(GATE_UP_FLOAT)
