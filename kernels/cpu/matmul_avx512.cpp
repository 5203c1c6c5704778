// Matrix products with AVX-512 VNNI: which kernel serves which type.
#include "matmul.h"

#if defined(__AVX512VNNI__)
#include "avx512/float_product.h"
#include "avx512/quantise.h"
#include "avx512/tile_product.h"
#include "avx512/unpack_blocks_of_32.h"
#include "avx512/unpack_decoded.h"
#include "avx512/unpack_iq1.h"
#include "avx512/unpack_iq2.h"
#include "avx512/unpack_iq3.h"
#include "avx512/unpack_k_quants.h"
#include "avx512/unpack_low_bit.h"
#include "avx512/unpack_tables.h"

namespace sharpi {
namespace {

struct Entry {
  QuantType type;
  ProductFn rounded, exact;
};
template <QuantType kType, class Unpack>
constexpr Entry quantised() {
  return {kType, avx512::tile_product<Unpack>, avx512::exact_product<kType>};
}
template <QuantType kType, class Type>
constexpr Entry blocks_of_32() {
  return quantised<kType, avx512::UnpackBlocksOf32<Type>>();
}
template <QuantType kType, class Block, int kValues = 256>
constexpr Entry decoded() {
  return quantised<kType, avx512::UnpackDecoded<kType, kValues, sizeof(Block)>>();
}
template <QuantType kType, class Weight>
constexpr Entry floats() {
  return {kType, avx512::float_product<Weight>, avx512::float_product<Weight>};
}

constexpr Entry kEntries[] = {
    floats<QuantType::F32, avx512::F32>(),
    floats<QuantType::F16, avx512::F16>(),
    floats<QuantType::BF16, avx512::BF16>(),
    blocks_of_32<QuantType::Q4_0, avx512::Q4_0>(),
    blocks_of_32<QuantType::Q4_1, avx512::Q4_1>(),
    blocks_of_32<QuantType::Q5_0, avx512::Q5_0>(),
    blocks_of_32<QuantType::Q5_1, avx512::Q5_1>(),
    blocks_of_32<QuantType::Q8_0, avx512::Q8_0>(),
    blocks_of_32<QuantType::IQ4_NL, avx512::IQ4_NL>(),
    blocks_of_32<QuantType::MXFP4, avx512::MXFP4>(),
    quantised<QuantType::Q2_K, avx512::UnpackQ2_K>(),
    quantised<QuantType::Q3_K, avx512::UnpackQ3_K>(),
    quantised<QuantType::Q4_K, avx512::UnpackQ4_K>(),
    quantised<QuantType::Q5_K, avx512::UnpackQ5_K>(),
    quantised<QuantType::Q6_K, avx512::UnpackQ6_K>(),
    quantised<QuantType::IQ4_XS, avx512::UnpackIQ4_XS>(),
    quantised<QuantType::IQ2_XXS, avx512::UnpackIQ2_XXS>(),
    quantised<QuantType::IQ2_XS, avx512::UnpackIQ2_XS>(),
    quantised<QuantType::IQ2_S, avx512::UnpackIQ2_S>(),
    quantised<QuantType::IQ3_XXS, avx512::UnpackIQ3_XXS>(),
    quantised<QuantType::IQ3_S, avx512::UnpackIQ3_S>(),
    quantised<QuantType::IQ1_S, avx512::UnpackIQ1_S>(),
    quantised<QuantType::IQ1_M, avx512::UnpackIQ1_M>(),
    decoded<QuantType::TQ1_0, BlockTQ1_0>(),
    quantised<QuantType::TQ2_0, avx512::UnpackTQ2_0>(),
    quantised<QuantType::NVFP4, avx512::UnpackNVFP4>(),
    decoded<QuantType::Q1_0, BlockQ1_0, 128>(),
    decoded<QuantType::Q2_0, BlockQ2_0, 64>(),
};

ProductFn product(QuantType type, Precision precision) {
  for (const Entry& entry : kEntries)
    if (entry.type == type) return precision == Precision::Exact ? entry.exact : entry.rounded;
  return nullptr;
}

void dequantise(QuantType type, const uint8_t* row, int num_columns, float* out) {
  portable_matmul()->dequantise(type, row, num_columns, out);
}

constexpr MatmulKernels kKernels{"avx512_vnni", product, avx512::quantise, dequantise};

}  // namespace

const MatmulKernels* avx512_vnni_matmul() { return &kKernels; }

}  // namespace sharpi
#else
namespace sharpi {

const MatmulKernels* avx512_vnni_matmul() { return nullptr; }

}  // namespace sharpi
#endif
