// The C surface of the expert feed. Nothing here throws.
#include <new>

#include "expert_feed.h"

#ifndef SHARPI_API
#define SHARPI_API extern "C" __attribute__((visibility("default")))
#endif

using namespace sharpi;

namespace {

ExpertFeed& feed(void* handle) { return *static_cast<ExpertFeed*>(handle); }

std::unique_ptr<Predictor> make_predictor(int kind, int num_layers, int num_experts) {
  if (kind < 0) return nullptr;
  return std::make_unique<Predictor>(PredictorKind(kind), num_layers, num_experts);
}

}  // namespace

// Creates a feed; a negative `predictor` means none. Returns null when memory is short.
SHARPI_API void* sharpi_feed_create(void* store, int predictor, int num_experts, int budget,
                                    int uses_router) {
  auto& s = *static_cast<ExpertStore*>(store);
  try {
    auto predictions = make_predictor(predictor, s.num_layers(), num_experts);
    return new ExpertFeed(s, std::move(predictions), budget, uses_router != 0);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
SHARPI_API void sharpi_feed_destroy(void* handle) { delete static_cast<ExpertFeed*>(handle); }

// Returns 1 if the last step lacked an expert.
SHARPI_API int sharpi_feed_take_failure(void* handle) { return feed(handle).take_failure(); }
// Returns 1 if the step predicts.
SHARPI_API int sharpi_feed_begin_step(void* handle, int may_predict, int is_prompt) {
  return feed(handle).begin_step(may_predict != 0, is_prompt != 0);
}
// Says whose tokens the next steps have: `sequences` and `begins` (count,). Returns 0, or -1 when
// memory is short.
SHARPI_API int sharpi_feed_set_sequences(void* handle, const int32_t* sequences,
                                         const uint8_t* begins, int count) {
  try {
    feed(handle).set_sequences(sequences, begins, count);
  } catch (const std::bad_alloc&) {
    return -1;
  }
  return 0;
}
SHARPI_API void sharpi_feed_reset_sequence(void* handle) { feed(handle).reset_sequence(); }
SHARPI_API void sharpi_feed_counts(void* handle, FeedCounts* counts) {
  *counts = feed(handle).counts();
}
