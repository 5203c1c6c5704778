// Matrix products for AVX2.
#if defined(__AVX2__)
#include "portable_product.h"

namespace sharpi {

const MatmulKernels* avx2_matmul() {
  static constexpr MatmulKernels kernels{"avx2", plain_product, plain_quantise, plain_dequantise};
  return &kernels;
}

}  // namespace sharpi
#else
#include "matmul.h"
const sharpi::MatmulKernels* sharpi::avx2_matmul() { return nullptr; }
#endif
