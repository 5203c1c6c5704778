// Matrix products for the compiler's baseline target.
#include "portable_product.h"

namespace sharpi {

const MatmulKernels* portable_matmul() {
  static constexpr MatmulKernels kernels{"portable", plain_product, quantise_row, plain_dequantise};
  return &kernels;
}

}  // namespace sharpi
