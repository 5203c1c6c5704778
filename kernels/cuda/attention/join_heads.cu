// Prepares heads and puts each behind other values: the work of heads and join in one launch.
//
// A block has one head, whose values its first warp prepares in shared memory.
#include "common/launch_order.cuh"
#include "heads.cuh"

// first: (T, heads, width); out: (T, heads, width + dim): each head's values behind those of
// `first`. The group has no pages, and its heads go back to x as well. Dynamic shared memory: a
// row. Grid (T * heads).
KERNEL __launch_bounds__(128)
    join_heads(HEAD_GROUP(a), const float* first, float* out, int width, int interleaved) {
  sharpi::wait_for_last_launch();
  using namespace sharpi;
  DYN_SHARED(float, row);
  const HeadGroup group = AS_HEAD_GROUP(a);
  const int item = blockIdx.x, token = item / group.heads, head = item % group.heads;
  const float* before = first + size_t(item) * width;
  float* target = out + size_t(item) * (width + group.dim);
  for (int i = threadIdx.x; i < width; i += blockDim.x) target[i] = before[i];
  if (threadIdx.x >= kWarp) return;
  prepare_head(group, token, head, row, interleaved);
  float* source = group.x + size_t(item) * group.dim;
  for (int i = threadIdx.x; i < group.dim; i += kWarp) source[i] = target[width + i] = row[i];
}
