// Dequantises a matrix to f16, for matmuls with many tokens: one thread per unit of a row.
#include "common/halves.cuh"
#include "weight_values.cuh"

namespace sharpi {

struct Halves {
  __half* out;

  __device__ __forceinline__ void take(int column, float4 a, float4 b) const {
    *(uint4*)(out + column) =
        make_uint4(two_halves(make_float2(a.x, a.y)), two_halves(make_float2(a.z, a.w)),
                   two_halves(make_float2(b.x, b.y)), two_halves(make_float2(b.z, b.w)));
  }
  __device__ __forceinline__ void take(int column, float2 v) const {
    *(uint32_t*)(out + column) = two_halves(v);
  }
};

template <class Values>
__device__ __forceinline__ void dequantise(const uint8_t* weights, __half* out, int rows,
                                           int columns) {
  const int units = Values::units(columns);
  const int64_t index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= int64_t(rows) * units) return;
  const int row = int(index / units), unit = int(index % units);
  typename Values::Unit values;
  Values::load(weights + size_t(row) * Values::row_bytes(columns), unit, columns, values);
  Values::each(values, unit, columns, Halves{out + size_t(row) * columns});
}

}  // namespace sharpi

#define DEQUANTISE(type, Values)                                                      \
  KERNEL __launch_bounds__(256)                                                       \
      dequantise_##type(const uint8_t* weights, __half* out, int rows, int columns) { \
    sharpi::dequantise<sharpi::Values>(weights, out, rows, columns);                  \
  }
#define DEQUANTISE_QUANTISED(Type, type) DEQUANTISE(type, QuantisedValues<sharpi::Type>)
#define DEQUANTISE_FLOAT(Type, type) DEQUANTISE(type, FloatValues<sharpi::Type>)

QUANTISED_TYPES(DEQUANTISE_QUANTISED)
FLOAT_TYPES(DEQUANTISE_FLOAT)
