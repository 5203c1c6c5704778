// Does the work of gather_experts and experts_gate_up for one token in a launch. The first rows of
// blocks copy the missed experts; of the others, only those that read a copy wait for it.
#include "common/launch_order.cuh"
#include "expert_gate_up.cuh"
#include "slots/gather_wait.cuh"

namespace sharpi {

template <class Type>
using OneDot = OneTokenDot<Type, kInGateUp>;

struct GateUpInput {
  Activations x;
  const int* ids;
  StackedMatrix gate, up;
  const float* weights;
  int used, lane_bits;
};

__device__ __forceinline__ bool is_copied(const Gather& gather, int count, int expert) {
  for (int i = 0; i < count; i++)
    if (gather.load(i).x == expert) return true;
  return false;
}

// The grid has a row of blocks for each of the token's experts, after those that copy.
template <class Dot>
__device__ __forceinline__ void gather_and_gate_up(const Gather& gather, int* copied,
                                                   const int64_t* since, int64_t* waited,
                                                   const GateUpInput& input, const Hidden& hidden) {
  const int copy_rows = int(gridDim.y) - input.used, item = int(blockIdx.y) - copy_rows;
  const int copying = copy_rows * int(gridDim.x), count = gather.count();
  const GatherWait copies = {copied, copying, int(gridDim.x * gridDim.y)};
  if (item < 0) {
    if (count == 0) return;
    gather.copy(int(blockIdx.y * gridDim.x + blockIdx.x), copying);
    return copies.end_copy(since, waited);
  }
  const int expert = input.ids[item];
  // Weights are read past coherence, but no block can have read those of a copy before it waited.
  if (is_copied(gather, count, expert)) copies.wait();
  else if (count) copies.pass();
  const GateUp halves = {matrix_of(input.gate, expert, hidden.rows),
                         matrix_of(input.up, expert, hidden.rows), input.weights};
  if (!halves.gate.weights) return;  // the CPU computes this item
  gate_up<Dot, 1>(halves, input.x, {nullptr, item, 1, input.used}, input.lane_bits, hidden);
}

}  // namespace sharpi

#define GATE_UP(entry, Dot)                                                                        \
  KERNEL __launch_bounds__(256, 2) entry(                                                          \
      const int* loads, const uint64_t* host_addresses_a, uint8_t* slots_a, uint8_t* early_a,      \
      uint8_t* staging_a, int64_t stride_a, int64_t bytes_a, const uint64_t* host_addresses_b,     \
      uint8_t* slots_b, uint8_t* early_b, uint8_t* staging_b, int64_t stride_b, int64_t bytes_b,   \
      const uint64_t* host_addresses_c, uint8_t* slots_c, uint8_t* early_c, uint8_t* staging_c,    \
      int64_t stride_c, int64_t bytes_c, int experts, int num_slots, int num_early, int* copied,   \
      const int64_t* since, int64_t* waited, const uint8_t* x, const int* ids,                     \
      const uint64_t* gate, const float* gate_bias, const float* gate_factors, const uint64_t* up, \
      const float* up_bias, const float* up_factors, const float* weights, uint8_t* hidden,        \
      int used, int columns, int rows, int planes, int hidden_planes, int activation,              \
      int lane_bits) {                                                                             \
    using namespace sharpi;                                                                        \
    wait_for_last_launch();                                                                        \
    const Gather gather = {loads,                                                                  \
                           {host_addresses_a, slots_a, early_a, staging_a, stride_a, bytes_a},     \
                           {host_addresses_b, slots_b, early_b, staging_b, stride_b, bytes_b},     \
                           {host_addresses_c, slots_c, early_c, staging_c, stride_c, bytes_c},     \
                           {experts, num_slots, num_early, 0},                                     \
                           int(blockDim.x)};                                                       \
    const GateUpInput input = {{x, columns, planes},                                               \
                               ids,                                                                \
                               {gate, gate_bias, gate_factors},                                    \
                               {up, up_bias, up_factors},                                          \
                               weights,                                                            \
                               used,                                                               \
                               lane_bits};                                                         \
    gather_and_gate_up<Dot>(gather, copied, since, waited, input,                                  \
                            {hidden, rows, hidden_planes, GateKind(activation)});                  \
  }
#define GATE_UP_QUANTISED(Type, type)                          \
  GATE_UP(experts_gather_gate_up_##type, OneDot<sharpi::Type>) \
  GATE_UP(experts_gather_gate_up_exact_##type, ExactDot<sharpi::Type>)
#define GATE_UP_FLOAT(Type, type) \
  GATE_UP(experts_gather_gate_up_exact_##type, FloatDot<sharpi::Type>)

QUANTISED_TYPES(GATE_UP_QUANTISED)
FLOAT_TYPES(GATE_UP_FLOAT)
