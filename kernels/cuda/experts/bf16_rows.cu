// Rows of routed tokens in bf16, in the order of packed items, for the library's grouped products.
//
// Buffers have a row for each item that there might be; rows without an item are left alone.
#include "common/brain_floats.cuh"
#include "common/gated.cuh"

// x: (T, width); items: see pack_routes; offsets (experts + 1,): the last is the number of rows.
// weights: (T * used,) by which x is multiplied, or null. Grid (rows, width / 256).
KERNEL __launch_bounds__(256)
    items_to_bf16(const float* x, const int* offsets, const int* items, const float* weights,
                  uint16_t* out, int experts, int used, int width) {
  const int row = blockIdx.x, i = int(blockIdx.y * blockDim.x + threadIdx.x);
  if (row >= offsets[experts] || i >= width) return;
  const int item = items[row];
  const float value = x[size_t(item / used) * width + i];
  out[size_t(row) * width + i] =
      sharpi::to_brain_float(weights ? __fmul_rn(weights[item], value) : value);
}

// gate: (rows, width), replaced by act(gate) * up; a null `up` gives the activation alone.
KERNEL __launch_bounds__(256) activate_bf16(uint16_t* gate, const uint16_t* up, const int* offsets,
                                            int experts, int width, int activation) {
  using namespace sharpi;
  const int row = blockIdx.x, i = int(blockIdx.y * blockDim.x + threadIdx.x);
  if (row >= offsets[experts] || i >= width) return;
  const size_t at = size_t(row) * width + i;
  const float other = up ? sharpi::of_brain_float(up[at]) : 1.f;
  gate[at] =
      sharpi::to_brain_float(gated(GateKind(activation), sharpi::of_brain_float(gate[at]), other));
}

KERNEL __launch_bounds__(256)
    from_bf16(const uint16_t* x, const int* offsets, float* out, int experts, int width) {
  const int row = blockIdx.x, i = int(blockIdx.y * blockDim.x + threadIdx.x);
  if (row >= offsets[experts] || i >= width) return;
  out[size_t(row) * width + i] = sharpi::of_brain_float(x[size_t(row) * width + i]);
}
