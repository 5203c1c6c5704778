// A row's 256 values as integers with a scale and an offset for each 16: the form to which every
// quant type is decoded.
//
// Internal linkage here and in block_decode*.h: the headers are compiled with different target
// flags.
#pragma once
#include <cstdint>
#include <cstring>

#include "quant_blocks.h"
#include "vector/simd.h"

namespace {
using namespace sharpi;

// value[i] = scale[i / 16] * q[i] - min[i / 16]; values past the end of a row are zero.
struct RowBlock {
  int8_t q[256];
  float scale[16];
  float min[16];
};

template <class Block>
inline Block block_at(const uint8_t* p) {
  Block block;
  memcpy(&block, p, sizeof block);
  return block;
}

// Sets q[i] = value(part, l), in parts of kLength values: loops of fixed length vectorise.
template <int kLength, class Value>
inline void fill(int8_t* q, int num_parts, Value value) {
  for (int part = 0; part < num_parts; part++)
    for (int l = 0; l < kLength; l++) q[kLength * part + l] = int8_t(value(part, l));
}

// Sets one scale for all values, and no offset.
inline void set_scale(RowBlock& out, int first, int num_groups, float scale) {
  for (int g = first; g < first + num_groups; g++) out.scale[g] = scale, out.min[g] = 0;
}

}  // namespace
