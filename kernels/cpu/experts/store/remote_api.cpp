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

// Creates the channels to so many ranks. Returns null when memory is short.
SHARPI_API void* sharpi_remote_create(int num_layers, int num_experts, int num_ranks,
                                      int max_tokens) {
  try {
    return new RemoteExperts(num_layers, num_experts, num_ranks, max_tokens);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
SHARPI_API void sharpi_remote_destroy(void* handle) { delete static_cast<RemoteExperts*>(handle); }

SHARPI_API void sharpi_remote_add_experts(void* handle, int layer, int first, int end, int rank) {
  remote(handle).add_experts(layer, first, end, rank);
}
SHARPI_API void sharpi_remote_remove_rank(void* handle, int rank) {
  remote(handle).remove_rank(rank);
}

// Waits for a request to a rank. Returns its address and size; null at the end.
SHARPI_API const void* sharpi_remote_next_request(void* handle, int rank, size_t* bytes) {
  return remote(handle).next_request(rank, *bytes);
}
// Returns the address and size of the buffer for the reply to that request.
SHARPI_API void* sharpi_remote_reply_buffer(void* handle, int rank, size_t* bytes) {
  return remote(handle).reply_buffer(rank, *bytes);
}
// Says that the reply is there, or where `has_reply` is 0 that there is none.
SHARPI_API void sharpi_remote_complete(void* handle, int rank, int has_reply) {
  remote(handle).complete(rank, has_reply != 0);
}
SHARPI_API void sharpi_remote_end(void* handle) { remote(handle).end(); }

// Writes the counts of a rank.
SHARPI_API void sharpi_remote_counts(void* handle, int rank, RemoteCounts* counts) {
  *counts = remote(handle).counts(rank);
}
// Writes the experts that were requested, `accesses` (layers, 2) by phase, and how often each was
// used, `uses` (layers, experts).
SHARPI_API void sharpi_remote_uses(void* handle, int64_t* accesses, int64_t* uses) {
  const RemoteExperts& r = remote(handle);
  for (int layer = 0; layer < r.num_layers(); layer++) {
    for (int phase = 0; phase < kPhases; phase++) *accesses++ = r.accesses(layer, Phase(phase));
    r.uses(layer, uses + size_t(layer) * r.num_experts());
  }
}

// Lets a feed request experts from other ranks, before its first step is recorded.
SHARPI_API void sharpi_feed_attach_remote(void* feed, void* handle) {
  static_cast<ExpertFeed*>(feed)->attach_remote(&remote(handle));
}
