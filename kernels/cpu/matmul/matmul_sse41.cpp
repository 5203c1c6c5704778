// Matrix products with SSE4.1: the kernels of AVX2 on registers of half the size, two for one.
#include "matmul.h"

#if defined(__SSE4_1__)
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

constinit const MatmulKernels kSse41Matmul{"sse41", product, quantise_row, dequantise};

}  // namespace sharpi
#endif
