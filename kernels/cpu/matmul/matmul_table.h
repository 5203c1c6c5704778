// Chooses the kernel for each quant type, for the x86 instruction sets: their unpackers have the
// same names.
//
// Included by matmul_<instruction set>.cpp after the headers of its kernels and `namespace isa =
// <instruction set>;`.
#pragma once
#include "matmul.h"
#include "quant/block_types.h"

namespace sharpi {
namespace {

struct Entry {
  QuantType type;
  ProductFn rounded, exact;
};
template <QuantType kType, class Unpack>
constexpr Entry quantised() {
  return {kType, isa::tile_product<Unpack>, isa::exact_product<kType>};
}
template <QuantType kType, class Type>
constexpr Entry blocks_of_32() {
  return quantised<kType, isa::UnpackBlocksOf32<Type>>();
}
template <QuantType kType, class Type>
constexpr Entry bits_in_order() {
  return quantised<kType, isa::UnpackBitsInOrder<Type>>();
}
template <QuantType kType, class Weight>
constexpr Entry floats() {
  return {kType, isa::float_product<Weight>, isa::float_product<Weight>};
}

constexpr Entry kEntries[] = {
    floats<QuantType::F32, isa::F32>(),
    floats<QuantType::F16, isa::F16>(),
    floats<QuantType::BF16, isa::BF16>(),
    blocks_of_32<QuantType::Q4_0, isa::Q4_0>(),
    blocks_of_32<QuantType::Q4_1, isa::Q4_1>(),
    blocks_of_32<QuantType::Q5_0, isa::Q5_0>(),
    blocks_of_32<QuantType::Q5_1, isa::Q5_1>(),
    blocks_of_32<QuantType::Q8_0, isa::Q8_0>(),
    blocks_of_32<QuantType::IQ4_NL, isa::IQ4_NL>(),
    blocks_of_32<QuantType::MXFP4, isa::MXFP4>(),
    quantised<QuantType::Q2_K, isa::UnpackQ2_K>(),
    quantised<QuantType::Q3_K, isa::UnpackQ3_K>(),
    quantised<QuantType::Q4_K, isa::UnpackQ4_K>(),
    quantised<QuantType::Q5_K, isa::UnpackQ5_K>(),
    quantised<QuantType::Q6_K, isa::UnpackQ6_K>(),
    quantised<QuantType::IQ4_XS, isa::UnpackIQ4_XS>(),
    quantised<QuantType::IQ2_XXS, isa::UnpackIQ2_XXS>(),
    quantised<QuantType::IQ2_XS, isa::UnpackIQ2_XS>(),
    quantised<QuantType::IQ2_S, isa::UnpackIQ2_S>(),
    quantised<QuantType::IQ3_XXS, isa::UnpackIQ3_XXS>(),
    quantised<QuantType::IQ3_S, isa::UnpackIQ3_S>(),
    quantised<QuantType::IQ1_S, isa::UnpackIQ1_S>(),
    quantised<QuantType::IQ1_M, isa::UnpackIQ1_M>(),
    quantised<QuantType::TQ1_0, isa::UnpackTQ1_0>(),
    quantised<QuantType::TQ2_0, isa::UnpackTQ2_0>(),
    quantised<QuantType::NVFP4, isa::UnpackNVFP4>(),
    bits_in_order<QuantType::Q1_0, isa::Q1_0>(),
    bits_in_order<QuantType::Q2_0, isa::Q2_0>(),
};

ProductFn product(QuantType type, Precision precision) {
  for (const Entry& entry : kEntries)
    if (entry.type == type) return precision == Precision::Exact ? entry.exact : entry.rounded;
  return nullptr;
}

// Compiled for the baseline target, so that a row has the same bits on every instruction set.
void dequantise(QuantType type, const uint8_t* row, int num_columns, float* out) {
  kPortableMatmul.dequantise(type, row, num_columns, out);
}

}  // namespace
}  // namespace sharpi
