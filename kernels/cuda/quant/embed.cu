// Looks up the rows of the embedding table for a step's ids and scales them: one thread per unit of
// a row.
#include "common/launch_order.cuh"
#include "weight_values.cuh"

namespace sharpi {

struct ScaledFloats {
  float* out;
  float scale;

  __device__ __forceinline__ void take(int column, float4 a, float4 b) const {
    float4* at = (float4*)(out + column);
    at[0] = make_float4(a.x * scale, a.y * scale, a.z * scale, a.w * scale);
    at[1] = make_float4(b.x * scale, b.y * scale, b.z * scale, b.w * scale);
  }
  __device__ __forceinline__ void take(int column, float2 v) const {
    *(float2*)(out + column) = make_float2(v.x * scale, v.y * scale);
  }
};

template <class Values>
__device__ __forceinline__ void embed(const uint8_t* table, const int* ids, float* out, int columns,
                                      float scale) {
  const int unit = int(blockIdx.x * blockDim.x + threadIdx.x), token = int(blockIdx.y);
  if (unit >= Values::units(columns)) return;
  typename Values::Unit weights;
  Values::load(table + size_t(ids[token]) * Values::row_bytes(columns), unit, columns, weights);
  Values::each(weights, unit, columns, ScaledFloats{out + size_t(token) * columns, scale});
}

}  // namespace sharpi

#define EMBED(type, Values)                                                                      \
  KERNEL __launch_bounds__(64)                                                                   \
      embed_##type(const uint8_t* table, const int* ids, float* out, int columns, float scale) { \
    sharpi::wait_for_last_launch();                                                              \
    sharpi::embed<sharpi::Values>(table, ids, out, columns, scale);                              \
  }
#define EMBED_QUANTISED(Type, type) EMBED(type, QuantisedValues<sharpi::Type>)
#define EMBED_FLOAT(Type, type) EMBED(type, FloatValues<sharpi::Type>)

QUANTISED_TYPES(EMBED_QUANTISED)
FLOAT_TYPES(EMBED_FLOAT)
