// Products of 64 rows of weights with 32 rows of activations, by a block on tensor cores.
//
// In each step, the block unpacks some units of its rows into shared memory, and copies the
// activations of the same columns beside them. Every sum is made in the order of dot_rows, so that
// the bits are the same. There, several lanes share a row. Here, the units of one such lane after
// the other are summed, and the lanes' sums are added in the order of sum_lanes. Lanes follow each
// other in the order of their reversed bits, so that the two newest sums are always added next.
//
// Activations have one plane.
#pragma once
#include "common/tensor_cores.cuh"
#include "dot.cuh"
#include "tile_position.cuh"

namespace sharpi {

constexpr int kTileColumns = 128;               // of a step
constexpr int kTileStride = kTileColumns + 16;  // so that eight rows lie in different banks
constexpr int kMaxLaneBits = 5;

// One step in shared memory. A slot holds a unit; the groups of a step are those of its
// units.
template <class Type>
struct TileStep {
  static constexpr int kValues = UnitLayout<Type>::kValues, kSlots = kTileColumns / kValues;
  static constexpr int kGroups = kSlots * Type::kGroups;
  static constexpr bool kNeedsTotal = Int8Dot<Type>::kNeedsTotal;

  alignas(16) uint8_t weights[kTileRows][kTileStride];
  alignas(16) uint8_t x[kTileItems][kTileStride];
  float scale[kGroups][kTileRows];
  float min[Type::kHasMin ? kGroups : 1][kTileRows];
  alignas(8) float x_scale[kGroups][kTileItems];
  alignas(4) int16_t total[kNeedsTotal ? kGroups : 1][kTileItems];
};

// A block's shared memory. One step is filled while the other is multiplied.
template <class Type>
struct TileMemory {
  TileStep<Type> steps[2];
  float waiting[8][kTileThreads];  // the first half of each sum, where 32 lanes share a row
};

// The order in which a tile takes its rows' units: all units of a lane, one per turn, then all of
// the next lane.
struct UnitOrder {
  int units, lane_bits, turns;
};

__device__ __forceinline__ UnitOrder unit_order(int units, int lane_bits) {
  return {units, lane_bits, (units + (1 << lane_bits) - 1) >> lane_bits};
}

// A position in that order; `index` counts the lanes.
struct UnitTurn {
  int index, turn;

  __device__ __forceinline__ void advance(const UnitOrder& order, int by) {
    turn += by;
    while (turn >= order.turns) turn -= order.turns, index++;
  }
  __device__ __forceinline__ bool is_end(const UnitOrder& order) const {
    return index >> order.lane_bits != 0;
  }
  // Returns the unit, which need not exist.
  __device__ __forceinline__ int unit(const UnitOrder& order) const {
    return int(__brev(unsigned(index)) >> (32 - order.lane_bits)) + (turn << order.lane_bits);
  }
  __device__ __forceinline__ bool has_unit(const UnitOrder& order) const {
    return !is_end(order) && unit(order) < order.units;
  }
};

// What one thread puts into shared memory in each step: a unit of a row of weights, and 16 bytes of
// an item's activations.
struct TileSource {
  const uint8_t* row;  // of weights; rows are those of threads modulo 64
  Activations x;
  int x_row;  // the activations of item threadIdx.x / 8
};

template <class Type>
__device__ __forceinline__ void fill_weights(const TileSource& from, const UnitOrder& order,
                                             UnitTurn at, TileStep<Type>& step) {
  const int row = int(threadIdx.x) % kTileRows, slot = int(threadIdx.x) / kTileRows;
  if (slot >= TileStep<Type>::kSlots) return;
  at.advance(order, slot);
  if (!at.has_unit(order)) return;
  typename Type::Unit unit;
  UnitLayout<Type>::load(from.row, at.unit(order), unit);
  int4* to = (int4*)(step.weights[row] + slot * TileStep<Type>::kValues);
#pragma unroll
  for (int g = 0; g < Type::kGroups; g++) {
    const int group = slot * Type::kGroups + g;
    step.scale[group][row] = unit.scale[g];
    if (Type::kHasMin) step.min[group][row] = unit.min[g];
#pragma unroll
    for (int w = 0; w < Type::kWords; w += 4)
      *to++ = make_int4(unit.words[g][w], unit.words[g][w + 1], unit.words[g][w + 2],
                        unit.words[g][w + 3]);
  }
}

template <class Type>
__device__ __forceinline__ void fill_activations(const TileSource& from, const UnitOrder& order,
                                                 UnitTurn at, TileStep<Type>& step) {
  constexpr int kPieces = kTileColumns / 16, kPiecesOfGroup = Type::kWords / 4;
  const int item = int(threadIdx.x) / kPieces, piece = int(threadIdx.x) % kPieces;
  const int group = piece / kPiecesOfGroup, part = piece % kPiecesOfGroup;
  at.advance(order, group / Type::kGroups);
  if (!at.has_unit(order)) return;
  const int column = UnitLayout<Type>::column(at.unit(order), group % Type::kGroups);
  const ActivationPlane plane = activation_plane(from.x.memory, from.x_row, from.x.columns, 1, 0);
  *(int4*)(step.x[item] + 16 * piece) = __ldg((const int4*)(plane.q + column) + part);
  if (part != 0) return;
  step.x_scale[group][item] = __ldg(plane.scale + unsigned(column) / 32);
  if (Int8Dot<Type>::kNeedsTotal)
    step.total[group][item] = int16_t(Int8Dot<Type>::total_of(plane.sum + unsigned(column) / 16));
}

template <class Type>
__device__ __forceinline__ void fill_step(const TileSource& from, const UnitOrder& order,
                                          UnitTurn at, TileStep<Type>& step) {
  fill_weights(from, order, at, step);
  fill_activations(from, order, at, step);
}

// Two floats or two small integers of adjacent items.
struct ItemPair {
  float2 scale;
  int total[2];
};

// The sums of lanes that are done: those of 2^b lanes await those of as many others, up to half of
// all lanes. The thread's part of TileMemory::waiting is `last`.
struct WaitingSums {
  float of[kMaxLaneBits - 1][8];
  float* last;

  // Adds the sum of a lane to those of the lanes before, as far as it has a partner. Its branches
  // are nested, since the compiler would make one of a loop execute every level.
  template <int kLevel = 0>
  __device__ __forceinline__ void end_lane(int index, WarpSums& sums) {
    const bool is_second = index >> kLevel & 1;
#pragma unroll
    for (int i = 0; i < 8; i++) {
      float& own = sums.sum[i / 4][i % 4];
      float& other = kLevel + 1 < kMaxLaneBits ? of[kLevel][i] : last[i * kTileThreads];
      if (is_second) own = __fadd_rn(other, own);
      if (!is_second) other = own;
    }
    if constexpr (kLevel + 1 < kMaxLaneBits)
      if (is_second) end_lane<kLevel + 1>(index, sums);
  }
};

template <class Type>
__device__ __forceinline__ ItemPair items_of_group(const TileStep<Type>& step, int group,
                                                   int item) {
  ItemPair pair = {*(const float2*)&step.x_scale[group][item], {0, 0}};
  if (TileStep<Type>::kNeedsTotal) {
    const int both = *(const int*)&step.total[group][item];
    pair.total[0] = int16_t(both), pair.total[1] = both >> 16;
  }
  return pair;
}

// Adds a group's products with 8 items to their sums, as Int8Dot::add_group does.
template <class Type, class Multiply>
__device__ __forceinline__ void add_products(const TileStep<Type>& step, const TilePosition& at,
                                             int group, int f, Multiply multiply, float (&sum)[4]) {
  const ItemPair items = items_of_group(step, group, at.item(f, 0));
  int dot[4];
#pragma unroll
  for (int i = 0; i < 4; i++) dot[i] = kWholeBits - Type::kOffset * items.total[i % 2];
  multiply(dot);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float scale = step.scale[group][at.row(i)];
    float value = __fmul_rn(scale, __fadd_rn(__int_as_float(dot[i]), -kWholeFloat));
    if (Type::kHasMin)
      value = __fmaf_rn(-step.min[group][at.row(i)], float(items.total[i % 2]), value);
    sum[i] = __fmaf_rn(i % 2 ? items.scale.y : items.scale.x, value, sum[i]);
  }
}

// Adds the products over 32 adjacent columns of a slot: one group, or two of 16 columns.
template <class Type>
__device__ __forceinline__ void add_32_columns(const TileStep<Type>& step, const TilePosition& at,
                                               int first_column, WarpSums& sums) {
  const int lane = int(threadIdx.x) % kWarp;
  uint32_t a[4], b[4];
  const int row = at.first_row + lane % 16, item = at.first_item + lane % 8 + lane / 16 * 8;
  load_matrices(step.weights[row] + first_column + lane / 16 * 16, a);
  load_matrices(step.x[item] + first_column + lane / 8 % 2 * 16, b);
  const int group = first_column / (4 * Type::kWords);
#pragma unroll
  for (int f = 0; f < 2; f++) {
    if (Type::kWords == 8) {
      const auto all = [&](int (&dot)[4]) { multiply_32_bytes(a, b[2 * f], b[2 * f + 1], dot); };
      add_products(step, at, group, f, all, sums.sum[f]);
    } else {
      const auto low = [&](int (&dot)[4]) { multiply_16_bytes(a[0], a[1], b[2 * f], dot); };
      const auto high = [&](int (&dot)[4]) { multiply_16_bytes(a[2], a[3], b[2 * f + 1], dot); };
      add_products(step, at, group, f, low, sums.sum[f]);
      add_products(step, at, group + 1, f, high, sums.sum[f]);
    }
  }
}

// Multiplies the units of a step, and moves `turn` past them. The sums of all lanes are in `sums`
// at the end.
template <class Type>
__device__ __forceinline__ void multiply_step(const TileStep<Type>& step, const TilePosition& at,
                                              const UnitOrder& order, UnitTurn& turn,
                                              WaitingSums& waiting, WarpSums& sums) {
#pragma unroll 1
  for (int slot = 0; slot < TileStep<Type>::kSlots && !turn.is_end(order); slot++) {
    if (turn.turn == 0) sums.clear();
    if (turn.has_unit(order))
#pragma unroll
      for (int c = 0; c < TileStep<Type>::kValues; c += 32)
        add_32_columns(step, at, slot * TileStep<Type>::kValues + c, sums);
    if (turn.turn == order.turns - 1) waiting.end_lane(turn.index, sums);
    turn.advance(order, 1);
  }
}

// Computes the sums of a tile. All threads of a block of kTileThreads call it; `has_items` says if
// the warp's items exist. A barrier is behind the last access to shared memory.
template <class Type>
__device__ __forceinline__ void multiply_tile(TileMemory<Type>& memory, const TileSource& from,
                                              const UnitOrder& order, bool has_items,
                                              WarpSums& sums) {
  constexpr int kSlots = TileStep<Type>::kSlots;
  const TilePosition at = TilePosition::here();
  UnitTurn filled = {0, 0}, turn = {0, 0};
  WaitingSums waiting;
  waiting.last = &memory.waiting[0][threadIdx.x];
  fill_step(from, order, filled, memory.steps[0]);
  const int count = (order.turns * (1 << order.lane_bits) + kSlots - 1) / kSlots;
#pragma unroll 1
  for (int i = 0; i < count; i++) {
    __syncthreads();
    filled.advance(order, kSlots);
    fill_step(from, order, filled, memory.steps[(i + 1) % 2]);
    if (has_items) multiply_step(memory.steps[i % 2], at, order, turn, waiting, sums);
  }
  __syncthreads();
}

}  // namespace sharpi
