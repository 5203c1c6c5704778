// Block sizes of the quant types.
#include "matmul/matmul.h"
#include "quant_blocks.h"

namespace sharpi {
namespace {

struct Size {
  int values, bytes;
};

Size size_of(QuantType type) {
  switch (type) {
    case QuantType::F32: return {1, 4};
    case QuantType::F16: return {1, 2};
    case QuantType::BF16: return {1, 2};
    case QuantType::Q4_0: return {32, sizeof(BlockQ4_0)};
    case QuantType::Q4_1: return {32, sizeof(BlockQ4_1)};
    case QuantType::Q5_0: return {32, sizeof(BlockQ5_0)};
    case QuantType::Q5_1: return {32, sizeof(BlockQ5_1)};
    case QuantType::Q8_0: return {32, sizeof(BlockQ8_0)};
    case QuantType::IQ4_NL: return {32, sizeof(BlockIQ4_NL)};
    case QuantType::MXFP4: return {32, sizeof(BlockMXFP4)};
    case QuantType::Q2_K: return {256, sizeof(BlockQ2_K)};
    case QuantType::Q3_K: return {256, sizeof(BlockQ3_K)};
    case QuantType::Q4_K: return {256, sizeof(BlockQ4_K)};
    case QuantType::Q5_K: return {256, sizeof(BlockQ5_K)};
    case QuantType::Q6_K: return {256, sizeof(BlockQ6_K)};
    case QuantType::IQ4_XS: return {256, sizeof(BlockIQ4_XS)};
    case QuantType::IQ2_XXS: return {256, sizeof(BlockIQ2_XXS)};
    case QuantType::IQ2_XS: return {256, sizeof(BlockIQ2_XS)};
    case QuantType::IQ2_S: return {256, sizeof(BlockIQ2_S)};
    case QuantType::IQ3_XXS: return {256, sizeof(BlockIQ3_XXS)};
    case QuantType::IQ3_S: return {256, sizeof(BlockIQ3_S)};
    case QuantType::IQ1_S: return {256, sizeof(BlockIQ1_S)};
    case QuantType::IQ1_M: return {256, sizeof(BlockIQ1_M)};
    case QuantType::TQ1_0: return {256, sizeof(BlockTQ1_0)};
    case QuantType::TQ2_0: return {256, sizeof(BlockTQ2_0)};
    case QuantType::NVFP4: return {64, sizeof(BlockNVFP4)};
    case QuantType::Q1_0: return {128, sizeof(BlockQ1_0)};
    case QuantType::Q2_0: return {64, sizeof(BlockQ2_0)};
  }
  return {0, 0};
}

}  // namespace

int block_values(QuantType type) { return size_of(type).values; }
int block_bytes(QuantType type) { return size_of(type).bytes; }

}  // namespace sharpi
