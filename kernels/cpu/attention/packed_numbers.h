// The visible part of a page's packed keys or values as numbers that products read, with their
// scales: the same form for all types. They are unpacked once for all queries of a page.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kv_pages.h"

namespace sharpi {

// The positions of a page that a query, or any of several queries, sees.
struct Visible {
  int begin, end;
};

// A page of one KV head.
struct KvPage {
  const uint8_t* keys;
  const uint8_t* values;   // null: the values are the beginning of each key
  int key_dim, value_dim;  // value_dim: as stored, a multiple of 16
};

// Keys as [panel][dim / 4][16][4] levels plus `zero`.
struct PackedKeys {
  const uint8_t* numbers;  // of the first panel
  size_t panel_apart;      // bytes from a panel's numbers to the next one's
  const uint8_t* scales;   // of the first panel, f16
  size_t scales_apart;     // bytes likewise
  int block_apart;         // scales from one block to the next; 0: one for all
  int minimum_apart;       // scales from a block's scale to its minimum; 0: there is none
  int zero;
};

// The numbers of a page's positions as words: those of the first and the third quarter side by
// side, then those of the second and the fourth, as the values lie.
struct alignas(64) PageWords {
  uint32_t pairs[2][kPage / 4];
};

// The scales of a column's values relative to the largest visible magnitude, in units of 2^-15, and
// that magnitude.
struct ColumnScales {
  PageWords relative;
  float largest;
};

constexpr int kColumnCodes = kPage * kKvBlock;

// Values as [column][16][32 numbers][4 positions] levels plus `zero`.
struct PackedValues {
  const uint8_t* numbers;
  const uint16_t* scales;  // (64) of the first column, f16
  int column_apart;        // scales from one column to the next; 0: one for all
  int minimum_apart;       // as above
  int zero;
  Visible range;                // the range that `columns` were computed for
  const ColumnScales* columns;  // for products with rounded weights; else null
};

// The bytes that unpacked keys and values of a page take, in multiples of a cache line.
constexpr size_t unpacked_key_bytes(int dim) { return size_t(kPage) * dim; }
constexpr size_t unpacked_value_bytes(int dim) {
  return size_t(kPage) * dim + (dim / kKvBlock + 1) * sizeof(ColumnScales);
}

}  // namespace sharpi
