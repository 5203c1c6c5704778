// The C surface of experts on other ranks. Nothing here throws.
#include <new>

#include "expert_feed.h"
#include "remote_experts.h"

#ifndef SHARPI_API
#define SHARPI_API extern "C" __attribute__((visibility("default")))
#endif

using namespace sharpi;

namespace {

RemoteExperts& remote(void* handle) { return *static_cast<RemoteExperts*>(handle); }

}  // namespace

// Creates the lines to so many ranks. Returns null when memory is short.
SHARPI_API void* sharpi_remote_create(int num_layers, int num_experts, int num_ranks,
                                      int max_tokens) {
  try {
    return new RemoteExperts(num_layers, num_experts, num_ranks, max_tokens);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
SHARPI_API void sharpi_remote_destroy(void* handle) { delete static_cast<RemoteExperts*>(handle); }

SHARPI_API void sharpi_remote_lend(void* handle, int layer, int first, int end, int rank) {
  remote(handle).lend(layer, first, end, rank);
}
SHARPI_API void sharpi_remote_forget(void* handle, int rank) { remote(handle).forget(rank); }

// Waits for a question to a rank. Returns its address and size; null at the end.
SHARPI_API const void* sharpi_remote_take(void* handle, int rank, size_t* bytes) {
  return remote(handle).take(rank, *bytes);
}
// Returns the address and size for the answer to the question that was taken.
SHARPI_API void* sharpi_remote_answer(void* handle, int rank, size_t* bytes) {
  return remote(handle).answer_of(rank, *bytes);
}
// Says that the answer is there, or where `is_right` is 0 that there is none.
SHARPI_API void sharpi_remote_give(void* handle, int rank, int is_right) {
  remote(handle).give(rank, is_right != 0);
}
SHARPI_API void sharpi_remote_end(void* handle) { remote(handle).end(); }

// Writes the counts of a rank.
SHARPI_API void sharpi_remote_counts(void* handle, int rank, RemoteCounts* counts) {
  *counts = remote(handle).counts(rank);
}
// Writes the experts that were asked for, `accesses` (layers, 2) by phase, and how often each was
// used, `uses` (layers, experts).
SHARPI_API void sharpi_remote_uses(void* handle, int64_t* accesses, int64_t* uses) {
  const RemoteExperts& r = remote(handle);
  for (int layer = 0; layer < r.num_layers(); layer++) {
    for (int phase = 0; phase < kPhases; phase++) *accesses++ = r.accesses(layer, Phase(phase));
    r.uses(layer, uses + size_t(layer) * r.num_experts());
  }
}

// Lets a feed ask other ranks, before its first step is recorded.
SHARPI_API void sharpi_feed_ask(void* feed, void* handle) {
  static_cast<ExpertFeed*>(feed)->ask_ranks(&remote(handle));
}
