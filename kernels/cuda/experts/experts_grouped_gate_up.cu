// Computes act(gate x + bias) * (up x + bias) of many items: a block takes 32 rows of an expert and
// goes through that expert's items eight at a time.
#include "expert_gate_up.cuh"

namespace sharpi {

constexpr int kAtOnce = 8;

// `offsets` and `list` come from group_routes, or packed from pack_routes.
template <class Dot>
__device__ __forceinline__ void experts_grouped_gate_up(const Activations& x, const int* offsets,
                                                        const int* list, const StackedMatrix& gate,
                                                        const StackedMatrix& up,
                                                        const float* weights, const Hidden& hidden,
                                                        int used, int lane_bits, bool is_packed) {
  const int expert = int(blockIdx.y), end = offsets[expert + 1];
  if (!gate.addresses[expert]) return;  // the CPU computes this expert
  const GateUp halves = {matrix_of(gate, expert, hidden.rows), matrix_of(up, expert, hidden.rows),
                         weights};
  for (int first = offsets[expert]; first < end; first += kAtOnce) {
    const Items items = {list, first, min(kAtOnce, end - first), used, is_packed};
    gate_up<Dot, kAtOnce>(halves, x, items, lane_bits, hidden);
    __syncthreads();
  }
}

}  // namespace sharpi

#define GATE_UP(entry, Dot)                                                                        \
  KERNEL __launch_bounds__(256, sharpi::Dot::kPairBlocks) entry(                                   \
      const uint8_t* x, const int* offsets, const int* items, const uint64_t* gate,                \
      const float* gate_bias, const float* gate_factors, const uint64_t* up, const float* up_bias, \
      const float* up_factors, const float* weights, uint8_t* hidden, int used, int columns,       \
      int rows, int planes, int hidden_planes, int activation, int lane_bits, int is_packed) {     \
    sharpi::experts_grouped_gate_up<sharpi::Dot>(                                                  \
        {x, columns, planes}, offsets, items, {gate, gate_bias, gate_factors},                     \
        {up, up_bias, up_factors}, weights,                                                        \
        {hidden, rows, hidden_planes, sharpi::GateKind(activation)}, used, lane_bits,              \
        is_packed != 0);                                                                           \
  }
#define GATE_UP_QUANTISED(Type, type)                            \
  GATE_UP(experts_grouped_gate_up_##type, Int8Dot<sharpi::Type>) \
  GATE_UP(experts_grouped_gate_up_exact_##type, ExactDot<sharpi::Type>)
#define GATE_UP_FLOAT(Type, type) \
  GATE_UP(experts_grouped_gate_up_exact_##type, FloatDot<sharpi::Type>)

QUANTISED_TYPES(GATE_UP_QUANTISED)
FLOAT_TYPES(GATE_UP_FLOAT)
