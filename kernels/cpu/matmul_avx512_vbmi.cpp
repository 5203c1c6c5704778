// Matrix products with AVX-512 VNNI, VBMI and GFNI (Ice Lake, Zen 4 and later): the types that look values up.
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
    {QuantType::IQ2_XXS, tile_product<UnpackIQ2_XXS>}, {QuantType::IQ2_XS, tile_product<UnpackIQ2_XS>},
    {QuantType::IQ2_S, tile_product<UnpackIQ2_S>},     {QuantType::IQ3_XXS, tile_product<UnpackIQ3_XXS>},
    {QuantType::IQ3_S, tile_product<UnpackIQ3_S>},     {QuantType::IQ1_S, tile_product<UnpackIQ1_S>},
    {QuantType::IQ1_M, tile_product<UnpackIQ1_M>},
};

// Other types, and the exact products, have nothing to gain.
ProductFn product(QuantType type, Precision precision) {
  if (precision == Precision::Int8)
    for (const Entry& entry : kEntries)
      if (entry.type == type) return entry.rounded;
  return avx512_vnni_matmul()->product(type, precision);
}

}  // namespace

const MatmulKernels* avx512_vbmi_matmul() {
  static const MatmulKernels kernels = [] {
    MatmulKernels all = *avx512_vnni_matmul();
    all.name = "avx512_vbmi";
    all.product = product;
    return all;
  }();
  return &kernels;
}

}  // namespace sharpi
#else
const sharpi::MatmulKernels* sharpi::avx512_vbmi_matmul() { return nullptr; }
#endif
