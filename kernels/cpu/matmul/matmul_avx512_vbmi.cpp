// Matrix products with AVX-512 VNNI, VBMI and GFNI (Ice Lake, Zen 4 and later), for the quant types
// that look values up in tables.
#include "matmul.h"

#if defined(__AVX512VBMI__) && defined(__GFNI__)
#include "avx512/tile_product.h"
#include "avx512_vbmi/unpack_iq1.h"
#include "avx512_vbmi/unpack_iq2.h"
#include "avx512_vbmi/unpack_iq3.h"

namespace sharpi {
namespace {
using namespace avx512_vbmi;

struct Entry {
  QuantType type;
  ProductFn rounded;
};
constexpr Entry kEntries[] = {
    {QuantType::IQ2_XXS, tile_product<UnpackIQ2_XXS>},
    {QuantType::IQ2_XS, tile_product<UnpackIQ2_XS>},
    {QuantType::IQ2_S, tile_product<UnpackIQ2_S>},
    {QuantType::IQ3_XXS, tile_product<UnpackIQ3_XXS>},
    {QuantType::IQ3_S, tile_product<UnpackIQ3_S>},
    {QuantType::IQ1_S, tile_product<UnpackIQ1_S>},
    {QuantType::IQ1_M, tile_product<UnpackIQ1_M>},
};

// Other types and exact products would gain nothing: they use the kernels of plain AVX-512.
ProductFn product(QuantType type, Precision precision) {
  if (precision == Precision::Int8)
    for (const Entry& entry : kEntries)
      if (entry.type == type) return entry.rounded;
  return kAvx512VnniMatmul.product(type, precision);
}
void quantise(const float* values, int n, Activation* out) {
  kAvx512VnniMatmul.quantise(values, n, out);
}
void dequantise(QuantType type, const uint8_t* row, int num_columns, float* out) {
  kAvx512VnniMatmul.dequantise(type, row, num_columns, out);
}

}  // namespace

constinit const MatmulKernels kAvx512VbmiMatmul{"avx512_vbmi", product, quantise, dequantise};

}  // namespace sharpi
#endif
