// Matrix products with AVX-512 VNNI: chooses the kernel for each quant type.
#include "matmul.h"

#if defined(__AVX512VNNI__)
#include "avx512/float_product.h"
#include "avx512/quantise.h"
#include "avx512/tile_product.h"
#include "avx512/unpack_blocks_of_32.h"
#include "avx512/unpack_few_bits.h"
#include "avx512/unpack_iq1.h"
#include "avx512/unpack_iq2.h"
#include "avx512/unpack_iq3.h"
#include "avx512/unpack_k_quants.h"
#include "avx512/unpack_low_bit.h"
#include "avx512/unpack_tables.h"

namespace sharpi {
namespace {
namespace isa = avx512;
}
}  // namespace sharpi
#include "matmul_table.h"

namespace sharpi {

constinit const MatmulKernels kAvx512VnniMatmul{"avx512_vnni", product, avx512::quantise,
                                                dequantise};

}  // namespace sharpi
#endif
