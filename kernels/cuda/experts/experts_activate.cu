// Computes act(gate) * up of items whose products were computed separately: a warp takes 32 rows of
// an item.
#include "expert_gate_up.cuh"

// If `up` is null, applies the activation alone.
KERNEL __launch_bounds__(256) experts_activate(const float* gate, const float* up, uint8_t* hidden,
                                               int rows, int hidden_planes, int activation) {
  using namespace sharpi;
  const int item = int(blockIdx.x);
  const int tile = int(blockIdx.y * blockDim.x + threadIdx.x) / kWarp;
  if (kWarp * tile >= rows) return;
  const int row = min(kWarp * tile + int(threadIdx.x) % kWarp, rows - 1);
  const size_t at = size_t(item) * rows + row;
  const GateKind kind = GateKind(activation);
  const float value = gated(kind, gate[at], up ? up[at] : 1.f);
  store_hidden({hidden, rows, hidden_planes, kind}, item, tile, value);
}
