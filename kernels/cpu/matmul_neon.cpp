// Matrix products for ARM.
#if defined(__aarch64__)
#include "portable_product.h"

namespace sharpi {

const MatmulKernels* neon_matmul() {
  static constexpr MatmulKernels kernels{"neon", plain_product, quantise_row, plain_dequantise};
  return &kernels;
}

}  // namespace sharpi
#else
#include "matmul.h"
const sharpi::MatmulKernels* sharpi::neon_matmul() { return nullptr; }
#endif
