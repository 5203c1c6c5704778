// The quant types that have blocks, as constants for templates.
#pragma once
#include <cstddef>
#include <iterator>
#include <type_traits>
#include <utility>

#include "matmul/matmul.h"

namespace {
using namespace sharpi;

constexpr QuantType kBlockTypes[] = {
    QuantType::Q4_0,   QuantType::Q4_1,    QuantType::Q5_0,   QuantType::Q5_1,  QuantType::Q8_0,
    QuantType::Q2_K,   QuantType::Q3_K,    QuantType::Q4_K,   QuantType::Q5_K,  QuantType::Q6_K,
    QuantType::IQ4_NL, QuantType::IQ4_XS,  QuantType::MXFP4,  QuantType::NVFP4, QuantType::IQ1_S,
    QuantType::IQ1_M,  QuantType::IQ2_XXS, QuantType::IQ2_XS, QuantType::IQ2_S, QuantType::IQ3_XXS,
    QuantType::IQ3_S,  QuantType::TQ1_0,   QuantType::TQ2_0,  QuantType::Q1_0,  QuantType::Q2_0,
};

// Returns make(constant of the type): a function, or null for a type without blocks.
template <class Make, size_t... kIndices>
ProductFn product_of(QuantType type, Make make, std::index_sequence<kIndices...>) {
  ProductFn found = nullptr;
  const auto consider = [&](auto constant) {
    if (type == constant()) found = make(constant);
  };
  (consider(std::integral_constant<QuantType, kBlockTypes[kIndices]>()), ...);
  return found;
}
template <class Make>
ProductFn product_of(QuantType type, Make make) {
  return product_of(type, make, std::make_index_sequence<std::size(kBlockTypes)>());
}

}  // namespace
