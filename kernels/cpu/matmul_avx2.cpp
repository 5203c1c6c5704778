// Matrix products with AVX2: which kernel serves which type.
#include "matmul.h"

#if defined(__AVX2__)
#include "avx2/float_product.h"
#include "avx2/tile_product.h"
#include "avx2/unpack_blocks_of_32.h"
#include "avx2/unpack_decoded.h"
#include "avx2/unpack_iq.h"
#include "avx2/unpack_iq1.h"
#include "avx2/unpack_k_quants.h"
#include "avx2/unpack_low_bit.h"
#include "avx2/unpack_tables.h"
#include "quantise.h"

namespace sharpi {
namespace {

struct Entry {
  QuantType type;
  ProductFn rounded, exact;
};
template <QuantType kType, class Unpack>
constexpr Entry quantised() {
  return {kType, avx2::tile_product<Unpack>, avx2::exact_product<kType>};
}
template <QuantType kType, class Type>
constexpr Entry blocks_of_32() {
  return quantised<kType, avx2::UnpackBlocksOf32<Type>>();
}
template <QuantType kType, class Block, int kValues = 256>
constexpr Entry decoded() {
  return quantised<kType, avx2::UnpackDecoded<kType, kValues, sizeof(Block)>>();
}
template <QuantType kType, class Weight>
constexpr Entry floats() {
  return {kType, avx2::float_product<Weight>, avx2::float_product<Weight>};
}

constexpr Entry kEntries[] = {
    floats<QuantType::F32, avx2::F32>(),
    floats<QuantType::F16, avx2::F16>(),
    floats<QuantType::BF16, avx2::BF16>(),
    blocks_of_32<QuantType::Q4_0, avx2::Q4_0>(),
    blocks_of_32<QuantType::Q4_1, avx2::Q4_1>(),
    blocks_of_32<QuantType::Q5_0, avx2::Q5_0>(),
    blocks_of_32<QuantType::Q5_1, avx2::Q5_1>(),
    blocks_of_32<QuantType::Q8_0, avx2::Q8_0>(),
    blocks_of_32<QuantType::IQ4_NL, avx2::IQ4_NL>(),
    blocks_of_32<QuantType::MXFP4, avx2::MXFP4>(),
    quantised<QuantType::Q2_K, avx2::UnpackQ2_K>(),
    quantised<QuantType::Q3_K, avx2::UnpackQ3_K>(),
    quantised<QuantType::Q4_K, avx2::UnpackQ4_K>(),
    quantised<QuantType::Q5_K, avx2::UnpackQ5_K>(),
    quantised<QuantType::Q6_K, avx2::UnpackQ6_K>(),
    quantised<QuantType::IQ4_XS, avx2::UnpackIQ4_XS>(),
    quantised<QuantType::IQ2_XXS, avx2::UnpackIQ2_XXS>(),
    quantised<QuantType::IQ2_XS, avx2::UnpackIQ2_XS>(),
    quantised<QuantType::IQ2_S, avx2::UnpackIQ2_S>(),
    quantised<QuantType::IQ3_XXS, avx2::UnpackIQ3_XXS>(),
    quantised<QuantType::IQ3_S, avx2::UnpackIQ3_S>(),
    quantised<QuantType::IQ1_S, avx2::UnpackIQ1_S>(),
    quantised<QuantType::IQ1_M, avx2::UnpackIQ1_M>(),
    decoded<QuantType::TQ1_0, BlockTQ1_0>(),
    quantised<QuantType::TQ2_0, avx2::UnpackTQ2_0>(),
    quantised<QuantType::NVFP4, avx2::UnpackNVFP4>(),
    decoded<QuantType::Q1_0, BlockQ1_0, 128>(),
    decoded<QuantType::Q2_0, BlockQ2_0, 64>(),
};

ProductFn product(QuantType type, Precision precision) {
  for (const Entry& entry : kEntries)
    if (entry.type == type) return precision == Precision::Exact ? entry.exact : entry.rounded;
  return nullptr;
}

// Baseline code, so that a row has the same bits on every instruction set.
void dequantise(QuantType type, const uint8_t* row, int num_columns, float* out) {
  portable_matmul()->dequantise(type, row, num_columns, out);
}

constexpr MatmulKernels kKernels{"avx2", product, quantise_row, dequantise};

}  // namespace

const MatmulKernels* avx2_matmul() { return &kKernels; }

}  // namespace sharpi
#else
const sharpi::MatmulKernels* sharpi::avx2_matmul() { return nullptr; }
#endif
