// Matrix products for the compiler's baseline target.
#include "portable_product.h"

namespace sharpi {

constinit const MatmulKernels kPortableMatmul{"portable", plain_product, quantise_row,
                                              plain_dequantise};

}  // namespace sharpi
