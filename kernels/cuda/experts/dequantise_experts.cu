// Dequantises the matrices of some experts to bf16, for the library's grouped GEMM: one thread per
// unit of a row. Experts without tokens are left out.
#include "common/brain_floats.cuh"
#include "experts/expert_items.cuh"
#include "quant/weight_values.cuh"

namespace sharpi {

struct BrainFloats {
  uint16_t* out;
  float factor;

  __device__ __forceinline__ void take(int column, float4 a, float4 b) const {
    *(uint4*)(out + column) =
        make_uint4(two(a.x, a.y), two(a.z, a.w), two(b.x, b.y), two(b.z, b.w));
  }
  __device__ __forceinline__ void take(int column, float2 v) const {
    *(uint32_t*)(out + column) = two(v.x, v.y);
  }
  __device__ __forceinline__ uint32_t two(float low, float high) const {
    return one(low) | one(high) << 16;
  }
  __device__ __forceinline__ uint32_t one(float x) const { return to_brain_float(factor * x); }
};

template <class Values>
__device__ __forceinline__ void dequantise_experts(const StackedMatrix& stacked, const int* offsets,
                                                   uint16_t* out, int rows, int columns) {
  const int units = Values::units(columns), expert = blockIdx.y;
  const int64_t index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (offsets[expert] == offsets[expert + 1] || index >= int64_t(rows) * units) return;
  const int row = int(index / units), unit = int(index % units);
  const ExpertMatrix matrix = matrix_of(stacked, expert, rows);
  typename Values::Unit values;
  Values::load(matrix.weights + size_t(row) * Values::row_bytes(columns), unit, columns, values);
  Values::each(values, unit, columns,
               BrainFloats{out + (size_t(expert) * rows + row) * columns, matrix.factor});
}

}  // namespace sharpi

// addresses, factors: see StackedMatrix; offsets: see group_routes; out: bf16 (experts, rows,
// columns), columns a multiple of 8. Grid (units of a matrix / 256, experts).
#define DEQUANTISE_EXPERTS(type, Values)                                                          \
  KERNEL __launch_bounds__(256)                                                                   \
      dequantise_experts_##type(const uint64_t* addresses, const float* factors,                  \
                                const int* offsets, uint16_t* out, int rows, int columns) {       \
    sharpi::dequantise_experts<sharpi::Values>({addresses, nullptr, factors}, offsets, out, rows, \
                                               columns);                                          \
  }
#define DEQUANTISE_QUANTISED(Type, type) DEQUANTISE_EXPERTS(type, QuantisedValues<sharpi::Type>)
#define DEQUANTISE_FLOAT(Type, type) DEQUANTISE_EXPERTS(type, FloatValues<sharpi::Type>)

QUANTISED_TYPES(DEQUANTISE_QUANTISED)
FLOAT_TYPES(DEQUANTISE_FLOAT)
