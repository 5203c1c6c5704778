// Matrix products for ARM: sdot where the CPU has it, widening multiplications where it does not.
#include "matmul.h"

#if defined(__aarch64__)
#include "neon/tile_product.h"
#include "portable_product.h"
#if defined(__linux__)
#include <sys/auxv.h>
#endif

namespace sharpi {
namespace {

bool has_sdot() {
#if defined(__ARM_FEATURE_DOTPROD)
  return true;
#elif defined(__linux__)
  constexpr unsigned long kDotProducts = 1 << 20;  // HWCAP_ASIMDDP
  return getauxval(AT_HWCAP) & kDotProducts;
#else
  return false;
#endif
}

// Float activations use the plain loops, which the compiler vectorises well here.
template <class Dot>
ProductFn product(QuantType type, Precision precision) {
  if (reads_floats(type, precision)) return plain_product(type, precision);
  return product_of(type, [](auto constant) { return neon::tile_product<Dot, constant()>; });
}

constexpr MatmulKernels kSdot{"neon", product<neon::Sdot>, quantise_row, plain_dequantise};
constexpr MatmulKernels kWidened{"neon", product<neon::WidenedProducts>, quantise_row,
                                 plain_dequantise};

}  // namespace

const MatmulKernels* neon_matmul() { return has_sdot() ? &kSdot : &kWidened; }

}  // namespace sharpi
#endif
