// Lists the experts that are predicted for the tokens of a step.
#pragma once
#include "common/types.cuh"

namespace sharpi {

// Returns the distinct experts that are predicted for some tokens, one per lane and the best ranks
// first; followed by -1. ids (tokens, used): -1 where none is predicted.
__device__ __forceinline__ int predicted_of(const int* ids, int tokens, int used) {
  const int lane = threadIdx.x;
  int listed = -1, num_listed = 0;
  for (int first = 0; first < tokens * used && num_listed < kWarp; first += kWarp) {
    const int i = first + lane, rank = i / tokens, token = i % tokens;
    const int some = rank < used ? ids[token * used + rank] : -1;
    for (int source = 0; source < kWarp && num_listed < kWarp; source++) {
      const int id = __shfl_sync(kFullWarp, some, source);
      if (id < 0 || __any_sync(kFullWarp, listed == id)) continue;
      if (lane == num_listed++) listed = id;
    }
  }
  return listed;
}

}  // namespace sharpi
