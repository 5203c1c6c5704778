// Matrix products with AVX2: chooses the kernel for each quant type.
#include "matmul.h"

#if defined(__AVX2__)
#include "avx2/float_product.h"
#include "avx2/tile_product.h"
#include "avx2/unpack_blocks_of_32.h"
#include "avx2/unpack_few_bits.h"
#include "avx2/unpack_iq.h"
#include "avx2/unpack_iq1.h"
#include "avx2/unpack_k_quants.h"
#include "avx2/unpack_low_bit.h"
#include "avx2/unpack_tables.h"
#include "quant/quantise.h"

namespace sharpi {
namespace {
namespace isa = avx2;
}
}  // namespace sharpi
#include "matmul_table.h"

namespace sharpi {

constinit const MatmulKernels kAvx2Matmul{"avx2", product, quantise_row, dequantise};

}  // namespace sharpi
#endif
