// Matrix products for ARM: sdot where the processor has it, widened products where it does not.
#include "matmul.h"

#if defined(__aarch64__)
#include <type_traits>

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

template <class Dot>
ProductFn rounded(QuantType type) {
  switch (type) {
    case QuantType::Q4_0:
      return neon::tile_product<Dot, QuantType::Q4_0>;
    case QuantType::Q4_1:
      return neon::tile_product<Dot, QuantType::Q4_1>;
    case QuantType::Q5_0:
      return neon::tile_product<Dot, QuantType::Q5_0>;
    case QuantType::Q5_1:
      return neon::tile_product<Dot, QuantType::Q5_1>;
    case QuantType::Q8_0:
      return neon::tile_product<Dot, QuantType::Q8_0>;
    case QuantType::IQ4_NL:
      return neon::tile_product<Dot, QuantType::IQ4_NL>;
    case QuantType::MXFP4:
      return neon::tile_product<Dot, QuantType::MXFP4>;
    case QuantType::Q2_K:
      return neon::tile_product<Dot, QuantType::Q2_K>;
    case QuantType::Q3_K:
      return neon::tile_product<Dot, QuantType::Q3_K>;
    case QuantType::Q4_K:
      return neon::tile_product<Dot, QuantType::Q4_K>;
    case QuantType::Q5_K:
      return neon::tile_product<Dot, QuantType::Q5_K>;
    case QuantType::Q6_K:
      return neon::tile_product<Dot, QuantType::Q6_K>;
    case QuantType::IQ4_XS:
      return neon::tile_product<Dot, QuantType::IQ4_XS>;
    default:
      return nullptr;
  }
}

// Float activations take the plain loops, which the compiler vectorises well here.
template <class Dot>
ProductFn product(QuantType type, Precision precision) {
  return takes_floats(type, precision) ? plain_product(type, precision) : rounded<Dot>(type);
}

constexpr MatmulKernels kSdot{"neon", product<neon::Sdot>, quantise_row, plain_dequantise};
constexpr MatmulKernels kWidened{"neon", product<neon::WidenedProducts>, quantise_row,
                                 plain_dequantise};

}  // namespace

const MatmulKernels* neon_matmul() { return has_sdot() ? &kSdot : &kWidened; }

}  // namespace sharpi
#else
const sharpi::MatmulKernels* sharpi::neon_matmul() { return nullptr; }
#endif
