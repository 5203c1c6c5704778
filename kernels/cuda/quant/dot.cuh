// The dot products of rows of weights with tokens, computed by adjacent lanes that share a row.
//
// Lane i of n takes units i, i + n, ...; each token's sum is made in that order, then over the
// lanes, by explicit fused multiply-adds: its bits depend on columns and n, not on the number of
// tokens. A Dot (Int8Dot, ExactDot, FloatDot) is for one type of weights and of activations. Its
// kBlocks, kManyBlocks and kPairBlocks are the blocks of 256 threads per multiprocessor that the
// registers allow: at one token, at eight tokens, and at eight tokens with two matrices.
#pragma once
#include "activations.cuh"
#include "quant_types.cuh"

namespace sharpi {

// `planes` of activation rows, or with no planes floats (tokens, columns).
struct Activations {
  const uint8_t* memory;
  int columns;
  int planes;
};

// Added to the bits of a small integer, makes the float 2^23 + 2^22 plus that integer.
constexpr int kWholeBits = 0x4b400000;
constexpr float kWholeFloat = 12582912.f;

// How the units of a quantised type lie in a row.
template <class Type>
struct UnitLayout {
  static constexpr int kValues = 4 * Type::kGroups * Type::kWords;
  static constexpr int kPerBlock = Type::kBlockValues / kValues;

  static __device__ __forceinline__ void load(const uint8_t* row, int unit,
                                              typename Type::Unit& out) {
    const unsigned block = unsigned(unit) / kPerBlock;  // unsigned, so that the division is a shift
    Type::unpack(row + size_t(block) * Type::kBlockBytes, unit & (kPerBlock - 1), out);
  }
  static __device__ __forceinline__ int column(int unit, int group) {
    const int first = int(unsigned(unit) / kPerBlock * Type::kBlockValues);
    return first + Type::column(unit & (kPerBlock - 1), group);
  }
  static __device__ __forceinline__ size_t row_bytes(int columns) {
    return size_t(columns / Type::kBlockValues) * Type::kBlockBytes;
  }
  static __device__ __forceinline__ int units(int columns) { return columns / kValues; }

  // Rows per group of lanes: as many as keep enough bytes in flight.
  static constexpr int kRowsAtOnce = kValues == 64 ? 1 : 2;
};

// Quantised weights times activations that are quantised to int8. With kOwnLoop, activations of one
// plane have their own loop, in which a lane loads kUnits units before it multiplies the first.
template <class Type, bool kOwnLoop = true, int kUnits = 1>
struct Int8Dot : UnitLayout<Type> {
  using Unit = typename Type::Unit;
  using Layout = UnitLayout<Type>;
  static constexpr int kBlocks = 3, kManyBlocks = 2;
  static constexpr int kPairBlocks = Layout::kValues == 64 ? 2 : 1;

  static __device__ __forceinline__ void load(const uint8_t* row, int unit, int, Unit& out) {
    Layout::load(row, unit, out);
  }

  template <int kRows>
  static __device__ __forceinline__ void add(const Unit (&weights)[kRows], int unit,
                                             const Activations& x, int token, float (&sum)[kRows]) {
#pragma unroll 1
    for (int p = 0; p < x.planes; p++) {
      const ActivationPlane plane = activation_plane(x.memory, token, x.columns, x.planes, p);
#pragma unroll
      for (int g = 0; g < Type::kGroups; g++)
        add_group(weights, g, Layout::column(unit, g), plane, sum);
    }
  }

  static constexpr bool kHasPlanes = kOwnLoop;
  static constexpr int kUnitsAtOnce = kUnits;

  // Does the same for activations of one plane, without a loop that has to wait for the loads.
  template <int kRows>
  static __device__ __forceinline__ void add_one(const Unit (&weights)[kRows], int unit,
                                                 const Activations& x, int token,
                                                 float (&sum)[kRows]) {
    const ActivationPlane plane = activation_plane(x.memory, token, x.columns, 1, 0);
#pragma unroll
    for (int g = 0; g < Type::kGroups; g++)
      add_group(weights, g, Layout::column(unit, g), plane, sum);
  }

  template <int kRows>
  static __device__ __forceinline__ void add_group(const Unit (&weights)[kRows], int g, int column,
                                                   const ActivationPlane& plane,
                                                   float (&sum)[kRows]) {
    const float scale = __ldg(plane.scale + unsigned(column) / 32);
    const int total = kNeedsTotal ? total_of(plane.sum + unsigned(column) / 16) : 0;
    int q[Type::kWords];
#pragma unroll
    for (int i = 0; i < Type::kWords / 4; i++) {
      const int4 four = __ldg((const int4*)(plane.q + column) + i);
      q[4 * i] = four.x, q[4 * i + 1] = four.y, q[4 * i + 2] = four.z, q[4 * i + 3] = four.w;
    }
#pragma unroll
    for (int r = 0; r < kRows; r++) {
      int dot = kWholeBits - Type::kOffset * total;
#pragma unroll
      for (int w = 0; w < Type::kWords; w++) dot = __dp4a(weights[r].words[g][w], q[w], dot);
      float value = __fmul_rn(weights[r].scale[g], __fadd_rn(__int_as_float(dot), -kWholeFloat));
      if (Type::kHasMin) value = __fmaf_rn(-weights[r].min[g], float(total), value);
      sum[r] = __fmaf_rn(scale, value, sum[r]);
    }
  }

  static constexpr bool kNeedsTotal = Type::kHasMin || Type::kOffset != 0;

  // Returns the sum of a group's activations: over 16 columns, or over two adjacent runs of 16.
  static __device__ __forceinline__ int total_of(const int16_t* sum) {
    if (Type::kWords == 4) return __ldg(sum);
    const int both = __ldg((const int*)sum);
    return int(int16_t(both)) + (both >> 16);
  }
};

// The Dot of a kernel for one token.
template <class Type, OneTokenKernel kKernel, bool kOwnLoop = true>
using OneTokenDot = Int8Dot<Type, kOwnLoop, (Type::kTwoUnits & kKernel) ? 2 : 1>;

// Loads four adjacent floats of a token.
__device__ __forceinline__ float4 four_floats(const Activations& x, int token, int column) {
  return __ldg((const float4*)((const float*)x.memory + size_t(token) * x.columns + column));
}

__device__ __forceinline__ float add_four(float4 w, float4 x, float sum) {
  sum = __fmaf_rn(w.x, x.x, sum);
  sum = __fmaf_rn(w.y, x.y, sum);
  sum = __fmaf_rn(w.z, x.z, sum);
  return __fmaf_rn(w.w, x.w, sum);
}

// Unpacks the weights of word w of a group.
template <class Type>
__device__ __forceinline__ float4 four_weights(const typename Type::Unit& unit, int g, int w) {
  float out[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float q = float(int(int8_t(unit.words[g][w] >> 8 * i)) - Type::kOffset);
    out[i] =
        Type::kHasMin ? __fmaf_rn(unit.scale[g], q, -unit.min[g]) : __fmul_rn(unit.scale[g], q);
  }
  return make_float4(out[0], out[1], out[2], out[3]);
}

// Quantised weights times float activations.
template <class Type>
struct ExactDot : UnitLayout<Type> {
  using Unit = typename Type::Unit;
  using Layout = UnitLayout<Type>;
  static constexpr int kBlocks = 2, kManyBlocks = 1, kPairBlocks = 1;

  static __device__ __forceinline__ void load(const uint8_t* row, int unit, int, Unit& out) {
    Layout::load(row, unit, out);
  }

  static constexpr bool kHasPlanes = false;
  template <int kRows>
  static __device__ __forceinline__ void add(const Unit (&weights)[kRows], int unit,
                                             const Activations& x, int token, float (&sum)[kRows]) {
#pragma unroll
    for (int g = 0; g < Type::kGroups; g++) {
#pragma unroll
      for (int w = 0; w < Type::kWords; w++) {
        const float4 four = four_floats(x, token, Layout::column(unit, g) + 4 * w);
#pragma unroll
        for (int r = 0; r < kRows; r++)
          sum[r] = add_four(four_weights<Type>(weights[r], g, w), four, sum[r]);
      }
    }
  }
};

// Float weights times float activations.
template <class Type>
struct FloatDot {
  using Unit = FloatUnit;

  static __device__ __forceinline__ size_t row_bytes(int columns) {
    return size_t(columns) * Type::kValueBytes;
  }
  static __device__ __forceinline__ int units(int columns) { return (columns + 7) / 8; }
  static constexpr int kRowsAtOnce = 2;
  static constexpr int kBlocks = 4, kManyBlocks = 2, kPairBlocks = 2;

  static __device__ __forceinline__ void load(const uint8_t* row, int unit, int columns,
                                              Unit& out) {
    load_floats<Type>(row, unit, columns, out);
  }

  static constexpr bool kHasPlanes = false;
  template <int kRows>
  static __device__ __forceinline__ void add(const Unit (&weights)[kRows], int unit,
                                             const Activations& x, int token, float (&sum)[kRows]) {
    Unit values;
    load_floats<F32>(x.memory + size_t(token) * x.columns * sizeof(float), unit, x.columns, values);
#pragma unroll
    for (int r = 0; r < kRows; r++)
#pragma unroll
      for (int i = 0; i < 8; i++)
        sum[r] = __fmaf_rn(weights[r].values[i], values.values[i], sum[r]);
  }
};

// The position of a thread among the lanes that share a row. The number of lanes is a power of two,
// so that nothing is divided.
struct LaneGroup {
  int lanes;  // up to 32
  int lane;
  int group;
  int groups;
};

__device__ __forceinline__ LaneGroup lane_group(int lane_bits) {
  const int lanes = 1 << lane_bits;
  return {lanes, int(threadIdx.x) & (lanes - 1), int(threadIdx.x >> lane_bits),
          int(blockDim.x >> lane_bits)};
}

// Adds the products with activations of one plane to sum: units `unit`, unit + at.lanes, ..., in
// this order, while there are two of them. Both are loaded before the first is multiplied. Returns
// the next unit.
template <class Dot, int kRows>
__device__ __forceinline__ int add_pairs(const LaneGroup& at, const uint8_t* const (&rows)[kRows],
                                         const Activations& x, int token, int unit, int units,
                                         float (&sum)[kRows]) {
#pragma unroll 1
  for (; unit + at.lanes < units; unit += 2 * at.lanes) {
    typename Dot::Unit first[kRows], second[kRows];
#pragma unroll
    for (int r = 0; r < kRows; r++) Dot::load(rows[r], unit, x.columns, first[r]);
#pragma unroll
    for (int r = 0; r < kRows; r++) Dot::load(rows[r], unit + at.lanes, x.columns, second[r]);
    Dot::add_one(first, unit, x, token, sum);
    Dot::add_one(second, unit + at.lanes, x, token, sum);
  }
  return unit;
}

// Computes sum[t][r], the product of row r with token tokens[t], on all lanes of the group, for t <
// count. All lanes of a warp must call it.
template <class Dot, int kRows, int kTokens>
__device__ __forceinline__ void dot_rows(const LaneGroup& at, const uint8_t* const (&rows)[kRows],
                                         const Activations& x, const int (&tokens)[kTokens],
                                         int count, float (&sum)[kTokens][kRows]) {
#pragma unroll
  for (int t = 0; t < kTokens; t++)
#pragma unroll
    for (int r = 0; r < kRows; r++) sum[t][r] = 0.f;
  const int units = Dot::units(x.columns);
  int begin = at.lane;
  if constexpr (kTokens == 1 && Dot::kHasPlanes)
    if (x.planes == 1) {
      if constexpr (Dot::kUnitsAtOnce == 2)
        begin = add_pairs<Dot>(at, rows, x, tokens[0], begin, units, sum[0]);
#pragma unroll 1
      for (; begin < units; begin += at.lanes) {
        typename Dot::Unit weights[kRows];
#pragma unroll
        for (int r = 0; r < kRows; r++) Dot::load(rows[r], begin, x.columns, weights[r]);
        Dot::add_one(weights, begin, x, tokens[0], sum[0]);
      }
    }
#pragma unroll 1
  for (int unit = begin; unit < units; unit += at.lanes) {
    typename Dot::Unit weights[kRows];
#pragma unroll
    for (int r = 0; r < kRows; r++) Dot::load(rows[r], unit, x.columns, weights[r]);
#pragma unroll
    for (int t = 0; t < kTokens; t++)
      if (kTokens == 1 || t < count) Dot::add(weights, unit, x, tokens[t], sum[t]);
  }
#pragma unroll
  for (int t = 0; t < kTokens; t++)
    if (kTokens == 1 || t < count)
#pragma unroll
      for (int r = 0; r < kRows; r++) sum[t][r] = sum_lanes(sum[t][r], at.lanes);
}

}  // namespace sharpi
