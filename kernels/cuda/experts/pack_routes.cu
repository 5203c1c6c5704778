// Lists the items of some adjacent experts again, starting at row 0 of a buffer, as many as it has
// rows. Further items are left out, and a flag is set.
#include "common/types.cuh"

// offsets: of the first of `experts` experts in the (experts + 1,) of group_routes; items: its
// items. packed_offsets (experts + 1,) and packed_items (capacity,) are the same for the buffer's
// rows; item_rows (num_items,): the row of an item of these experts, -1 for the others.
KERNEL __launch_bounds__(256)
    pack_routes(const int* offsets, const int* items, int* packed_offsets, int* packed_items,
                int* item_rows, int* is_over, int experts, int capacity) {
  const int base = offsets[0], count = offsets[experts] - base;
  const int first = int(blockIdx.x * blockDim.x + threadIdx.x);
  const int step = int(gridDim.x * blockDim.x);
  for (int e = first; e <= experts; e += step) packed_offsets[e] = min(offsets[e] - base, capacity);
  for (int i = first; i < count; i += step) {
    const int item = items[base + i];
    if (i < capacity) packed_items[i] = item;
    item_rows[item] = i < capacity ? i : -1;
  }
  if (first == 0 && count > capacity) *is_over = 1;
}
