// The expert store as the stages of a program use it: acquiring, predictions for the next layer,
// and what went wrong.
//
// One thread acquires, predicts and releases; any may wait.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "expert_store.h"
#include "experts/policy/predictor.h"

namespace sharpi {

// Experts that were predicted for decoded tokens, those used, and those both.
struct PredictionCounts {
  int64_t predicted = 0, used = 0, right = 0;
};

// A decoded token, one of each of several sequences, or more than one of some sequence.
enum class StepKind { Token, Tokens, Batch };

class ExpertFeed {
 public:
  // Without a predictor nothing is predicted. Predictions are at most `budget` experts of a layer.
  // Where the router is asked, it is so for all layers but the first.
  ExpertFeed(ExpertStore& store, std::unique_ptr<Predictor> predictor, int budget,
             bool asks_router);

  // Starts to bring a layer's experts, routes (tokens, k), and those predicted for the layer after
  // it.
  void acquire(int layer, const int32_t* routes, int tokens, int k, StepKind kind);
  // Predictions for a later layer, likeliest first.
  void predict_routes(int layer, const int32_t* experts, int count);
  bool is_ready(int layer, int expert) const { return store_.is_ready(layer, expert); }
  // Whether an acquired expert is not there yet, or holds a buffer that others may wait for.
  bool is_awaited(int layer, int expert) const {
    return !store_.is_ready(layer, expert) || store_.takes_staging(layer, expert);
  }
  // False where the expert cannot be read; the step has failed then, and acquires nothing more.
  bool wait(int layer, int expert);
  void release(int layer, int expert) { store_.release(layer, expert); }
  // All of a layer; after the last one the step is over.
  void release(int layer);

  // Experts in staging buffers that may be waited for before some are released. What is acquired
  // comes in the order of ids, and predictions leave so many buffers free, so that each of the
  // first ones gets one.
  int max_staging() const { return max_staging_; }
  bool has_failed() const { return failed_.load(std::memory_order_relaxed); }
  // Whether the step failed; the next one starts sound.
  bool take_failure() { return failed_.exchange(false); }
  // Whether the next step's predictions are made. True where they are worth it, or to find out.
  bool begin_step(bool may_predict);
  void reset_sequence();
  const PredictionCounts& prediction_counts() const { return counts_; }

 private:
  void judge(int layer, const int32_t* experts, int count);
  void predict(int layer);
  void predict_all(int layer);

  ExpertStore& store_;
  std::unique_ptr<Predictor> predictor_;
  const int budget_, max_staging_;
  const bool asks_router_;
  std::vector<int> next_;  // by layer, the next one with experts; that of the last is the first
  int last_layer_ = -1;
  std::vector<std::vector<int32_t>> predicted_;   // by layer, for its next use
  std::vector<std::vector<int32_t>> prefetched_;  // those of them that were not in memory
  std::vector<int32_t> ids_;
  float worth_ = 0.5f;                     // the part of the latest prefetches that was used
  int probe_every_ = 0, until_probe_ = 0;  // steps
  PredictionCounts counts_;
  bool predicts_ = true;
  std::atomic<bool> failed_{false};
};

}  // namespace sharpi
