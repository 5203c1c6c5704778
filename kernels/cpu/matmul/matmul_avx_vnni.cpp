// Matrix products with AVX-VNNI, the dot products of 256 bits: the kernels of AVX2, where these
// have another way (registers.h). The integers are the same, and so are all bits of a result.
#include "matmul.h"

#if defined(__AVXVNNI__) || defined(__AVX512VNNI__)  // a test has the second
#include "avx2/tile_product.h"
#include "avx2/unpack_blocks_of_32.h"
#include "avx2/unpack_few_bits.h"
#include "avx2/unpack_iq.h"
#include "avx2/unpack_iq1.h"
#include "avx2/unpack_k_quants.h"
#include "avx2/unpack_low_bit.h"
#include "avx2/unpack_tables.h"

namespace sharpi {
namespace {
namespace isa {
using namespace avx2;

// Products of floats would gain nothing: they are those of AVX2.
struct F32;
struct F16;
struct BF16;
template <class Weight>
constexpr ProductFn float_product = nullptr;
template <QuantType kType>
constexpr ProductFn exact_product = nullptr;

}  // namespace isa
}  // namespace
}  // namespace sharpi
#include "matmul_table.h"

namespace sharpi {
namespace {

ProductFn own_or_avx2_product(QuantType type, Precision precision) {
  const ProductFn own = product(type, precision);
  return own ? own : kAvx2Matmul.product(type, precision);
}
void quantise(const float* values, int n, Activation* out) { kAvx2Matmul.quantise(values, n, out); }

}  // namespace

constinit const MatmulKernels kAvxVnniMatmul{"avx_vnni", own_or_avx2_product, quantise, dequantise};

}  // namespace sharpi
#endif
