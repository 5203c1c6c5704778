// Predicts a layer's experts: the most used ones among those without a slot. One warp.
#include "slot_rules.cuh"

namespace sharpi {

// Returns the expert without a slot that follows `last` in order of falling uses, lower ids first;
// -1 if no other was used.
__device__ __forceinline__ int next_missing(const Slots& s, int last) {
  const int most = last < 0 ? kNone : s.uses[last];
  Rank best = {kNone, 0, kNone};
  for (int e = threadIdx.x; e < s.experts; e += kWarp) {
    const bool is_after = last < 0 || s.uses[e] < most || (s.uses[e] == most && e > last);
    const Rank rank = {-s.uses[e], 0, e};
    if (is_after && s.uses[e] > 0 && !s.resident(e) && rank.before(best)) best = rank;
  }
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const Rank other = {__shfl_xor_sync(kFullWarp, best.key, offset), 0,
                        __shfl_xor_sync(kFullWarp, best.id, offset)};
    if (other.before(best)) best = other;
  }
  return best.id == kNone ? -1 : best.id;
}

}  // namespace sharpi

// state: of the layer; ids (used,): the predicted experts, followed by -1.
KERNEL __launch_bounds__(32) slot_frequency(int* state, int* ids, int experts, int used) {
  using namespace sharpi;
  const Slots s(state, experts);
  int expert = -1;
  for (int i = 0; i < used; i++) {
    if (i == 0 || expert >= 0) expert = next_missing(s, expert);
    if (threadIdx.x == 0) ids[i] = expert;
  }
}
