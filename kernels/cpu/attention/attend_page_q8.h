// The same as attend_page.h for a page of q8_0: its visible part is converted to f16, which every
// attention implementation takes.
#pragma once
#include "attend_page.h"
#include "kv_q8.h"
#include "page_scratch.h"

namespace {

void attend_unpacked(const PageAttention& a) {
  const Visible range = visible(a);
  const size_t key_halves = size_t(kPage) * a.key_dim,
               value_halves = a.values ? size_t(kPage) * a.value_dim : 0;
  uint16_t *keys = page_scratch(key_halves + value_halves), *values = keys + key_halves;
  unpack_keys_q8(a.keys, a.key_dim, range.begin / kPanel, (range.end + kPanel - 1) / kPanel, keys);
  if (a.values) unpack_values_q8(a.values, a.value_dim, range.begin, range.end, values);
  PageAttention unpacked = a;
  unpacked.keys = (const uint8_t*)keys;
  unpacked.values = a.values ? (const uint8_t*)values : nullptr;
  unpacked.next = nullptr;
  attend_as<FullAttention>(unpacked);
}

}  // namespace
