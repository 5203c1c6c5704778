// The C surface of the predictors. Nothing here throws; null means that memory is short or the kind
// unknown.
#include <algorithm>
#include <new>

#include "policy_replay.h"
#include "predictor.h"

#ifndef SHARPI_API
#define SHARPI_API extern "C" __attribute__((visibility("default")))
#endif

using namespace sharpi;

namespace {

Predictor& predictor(void* handle) { return *static_cast<Predictor*>(handle); }

// Counts of experts that were predicted, used, and both.
struct PredictionCounts {
  int64_t predicted = 0, used = 0, right = 0;
};

// Replays decoded tokens; batches are neither predicted nor learned from.
void replay(Predictor& p, const Trace& trace, int budget, PredictionCounts& counts) {
  std::vector<int32_t> predicted(budget);
  for (int64_t i = 0, token = 0; i < trace.num_steps; token += trace.sizes[i++]) {
    if (trace.starts[i]) p.reset_sequence();
    for (int layer = 0; layer < trace.num_layers && trace.sizes[i] == 1; layer++) {
      const int32_t* route = trace.route(token, layer);
      const int count = p.predict(layer, budget, predicted.data());
      counts.predicted += count, counts.used += trace.k;
      for (int g = 0; g < count; g++)
        counts.right += std::find(route, route + trace.k, predicted[g]) != route + trace.k;
      p.observe(layer, route, trace.k);
    }
  }
}

}  // namespace

SHARPI_API void* sharpi_predictor_create(int kind, int num_layers, int num_experts) {
  if (kind < 0 || kind > int(PredictorKind::Frequency)) return nullptr;
  try {
    return new Predictor(PredictorKind(kind), num_layers, num_experts);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
SHARPI_API void sharpi_predictor_destroy(void* handle) { delete static_cast<Predictor*>(handle); }
SHARPI_API void sharpi_predictor_observe(void* handle, int layer, const int32_t* experts,
                                         int count) {
  predictor(handle).observe(layer, experts, count);
}
// Predicts up to `budget` experts into `experts`, and returns their number.
SHARPI_API int sharpi_predictor_predict(void* handle, int layer, int budget, int32_t* experts) {
  return predictor(handle).predict(layer, budget, experts);
}
SHARPI_API void sharpi_predictor_reset_sequence(void* handle) {
  predictor(handle).reset_sequence();
}
// Replays a trace; `counts`: how many experts were predicted, used, and both. Returns 0, or -1 when
// memory is short.
SHARPI_API int sharpi_predictor_replay(void* handle, const Trace* trace, int budget,
                                       PredictionCounts* counts) {
  try {
    replay(predictor(handle), *trace, budget, *counts);
  } catch (const std::bad_alloc&) {
    return -1;
  }
  return 0;
}
