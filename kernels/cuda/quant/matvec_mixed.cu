// Computes out = factor * W x + bias for two or three matrices of different quant types that share
// x, of one token. The file is compiled for two or three types at a time.
//
// Each row has the lanes that its type would have in matvec, so that the bits are the same.
#include "common/launch_order.cuh"
#include "matvec_part.cuh"

#ifndef FIRST_TYPE
#define FIRST_TYPE Q4_K
#define SECOND_TYPE Q6_K
#endif
#ifdef THIRD_TYPE
#define OF_THIRD(Dot) , sharpi::Dot<sharpi::THIRD_TYPE>
#else
#define OF_THIRD(Dot)
#endif

namespace sharpi {

// The lanes of a row and the rows of a block of one type, as powers of two.
struct TypeLayout {
  int lane_bits, tile_bits;
};

struct MixedParts {
  Part parts[3];
  int types;  // bits 2 * i and 2 * i + 1: the type of part i
  TypeLayout layouts[3];
};

// Returns the layout of a type; chosen by conditions, so that it stays in registers.
__device__ __forceinline__ TypeLayout layout_of(const MixedParts& all, int type) {
  return type == 0 ? all.layouts[0] : type == 1 ? all.layouts[1] : all.layouts[2];
}

// The part that a block belongs to, and its number within the part.
struct MixedPart {
  Part part;
  int block, type;
};

__device__ __forceinline__ MixedPart part_of_block(const MixedParts& all) {
  MixedPart at = {all.parts[0], int(blockIdx.x), all.types & 3};
#pragma unroll
  for (int i = 1; i < 3; i++) {
    const int bits = layout_of(all, at.type).tile_bits;
    const int blocks = (at.part.rows + (1 << bits) - 1) >> bits;
    if (at.block < blocks) return at;
    at = {all.parts[i], at.block - blocks, all.types >> 2 * i & 3};
  }
  return at;
}

template <class Dot>
__device__ __forceinline__ void multiply(const Activations& x, const MixedParts& all,
                                         const MixedPart& at) {
  const int lane_bits = layout_of(all, at.type).lane_bits;
  multiply_part<Dot, 1>(x, at.part, at.block, {nullptr, 1.f}, 1, lane_bits);
}

template <class First, class Second, class... Third>
__device__ __forceinline__ void matvec_mixed(const Activations& x, const MixedParts& all) {
  const MixedPart at = part_of_block(all);
  if (at.type == 0) multiply<First>(x, all, at);
  else if (at.type == 1) multiply<Second>(x, all, at);
  else (multiply<Third>(x, all, at), ...);
}

}  // namespace sharpi

#define MATVEC_MIXED(entry, Dot)                                                                 \
  KERNEL __launch_bounds__(256, sharpi::Dot<sharpi::FIRST_TYPE>::kBlocks) entry(                 \
      const uint8_t* x, const uint8_t* weights_a, const float* bias_a, float* out_a, int rows_a, \
      float factor_a, const uint8_t* weights_b, const float* bias_b, float* out_b, int rows_b,   \
      float factor_b, const uint8_t* weights_c, const float* bias_c, float* out_c, int rows_c,   \
      float factor_c, int columns, int planes, int types, int lane_bits_1, int tile_bits_1,      \
      int lane_bits_2, int tile_bits_2, int lane_bits_3, int tile_bits_3) {                      \
    sharpi::wait_for_last_launch();                                                              \
    sharpi::matvec_mixed<sharpi::Dot<sharpi::FIRST_TYPE>,                                        \
                         sharpi::Dot<sharpi::SECOND_TYPE> OF_THIRD(Dot)>(                        \
        {x, columns, planes},                                                                    \
        {{{weights_a, bias_a, out_a, rows_a, factor_a},                                          \
          {weights_b, bias_b, out_b, rows_b, factor_b},                                          \
          {weights_c, bias_c, out_c, rows_c, factor_c}},                                         \
         types,                                                                                  \
         {{lane_bits_1, tile_bits_1}, {lane_bits_2, tile_bits_2}, {lane_bits_3, tile_bits_3}}}); \
  }

MATVEC_MIXED(matvec_one_mixed, Int8Dot)
MATVEC_MIXED(matvec_one_mixed_exact, ExactDot)
