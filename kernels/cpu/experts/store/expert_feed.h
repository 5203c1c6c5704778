// The interface through which the stages of a program use the expert store: acquiring experts,
// predicting those of the next layer, and reporting failures.
//
// One thread acquires, predicts and releases; any thread may wait.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "expert_store.h"
#include "experts/policy/predictor.h"
#include "remote_experts.h"

namespace sharpi {

// How many experts were predicted for decoded tokens, how many of those tokens' experts were used,
// and how many were both; the steps that decoded, and those of them that predicted; and if the
// prefetches of late were worth it.
struct FeedCounts {
  int64_t predicted = 0, used = 0, right = 0, steps = 0, predicted_steps = 0, is_worth_it = 1;
};

// One decoded token, one of each of several sequences, such tokens with drafts after some of them,
// or a batch with a part of a prompt.
enum class StepKind { Token, Tokens, Drafted, Batch };

class ExpertFeed {
 public:
  // Without a predictor nothing is predicted. A prediction is at most `budget` experts of a layer.
  // With uses_router, the router predicts for all layers but the first.
  ExpertFeed(ExpertStore& store, std::unique_ptr<Predictor> predictor, int budget,
             bool uses_router);

  // Lets small steps request experts from other ranks that hold them, where memory here does not.
  void attach_remote(RemoteExperts* remote) { remote_ = remote; }
  RemoteExperts* remote() const { return remote_; }
  // Returns the rank from which the present step requests an expert of its layer, or -1.
  int requested_rank(int expert) const { return requested_.empty() ? -1 : requested_[expert]; }
  // Waits for the replies of other ranks; if one is missing, the step has failed.
  void wait_for_ranks();

  // Acquires a layer's experts, routes (tokens, k), which starts their reads, and predicts those of
  // the next layer.
  void acquire(int layer, const int32_t* routes, int tokens, int k, StepKind kind);
  // Prefetches the experts predicted for a later layer, likeliest first.
  void predict_routes(int layer, const int32_t* experts, int count);
  bool is_ready(int layer, int expert) const { return store_.is_ready(layer, expert); }
  // Returns true if an acquired expert is not there yet, or holds a buffer that others may wait
  // for.
  bool is_awaited(int layer, int expert) const {
    return !store_.is_ready(layer, expert) || store_.takes_staging(layer, expert);
  }
  // Waits for an expert. Returns false where it cannot be read; then the step has failed and
  // acquires nothing more.
  bool wait(int layer, int expert);
  void release(int layer, int expert) { store_.release(layer, expert); }
  // Releases all experts of a layer; the last layer ends the step.
  void release(int layer);

  // The number of experts in staging buffers that a caller may wait for before it releases some.
  // Experts are read in the order of their ids, and predictions leave that many buffers free, so
  // that each of the first ones gets one.
  int max_staging() const { return max_staging_; }
  Phase phase() const { return is_prompt_ ? Phase::Prompt : Phase::Decode; }
  bool has_failed() const { return failed_.load(std::memory_order_relaxed); }
  // Returns true if the step failed; the next one starts without a failure.
  bool take_failure() { return failed_.exchange(false); }
  // Begins a step and returns true if it predicts: where predictions are worth it, or as a probe.
  bool begin_step(bool may_predict, bool is_prompt);
  // Sets the sequence of each row of the next steps; `begins` marks new texts.
  void set_sequences(const int32_t* sequences, const uint8_t* begins, int count);
  // Begins a text that does not follow the last step's.
  void reset_sequence();
  FeedCounts counts() const;

 private:
  void note_requested(int layer, const int32_t* routes, int tokens, int k);
  void earn_waste(int layer, const int32_t* experts, int count);
  void learn(int layer, const int32_t* routes, int tokens, int k, StepKind kind);
  void score_prediction(int layer, const int32_t* experts, int count);
  void predict(int layer);
  int predict_row(int layer, int history);
  void predict_all(int layer);
  int history_of(int32_t sequence, const int32_t* present, int count);

  ExpertStore& store_;
  std::unique_ptr<Predictor> predictor_;
  const int budget_, max_staging_;
  const bool uses_router_;
  std::vector<int> next_;  // by layer: the next one with experts; after the last comes the first
  int last_layer_ = -1;
  std::vector<std::vector<int32_t>> predicted_;   // by layer: for its next use
  std::vector<std::vector<int32_t>> prefetched_;  // those of them that were not in memory
  std::vector<int32_t> ids_, likeliest_, own_;
  RemoteExperts* remote_ = nullptr;
  std::vector<int8_t> requested_;       // ranks, by expert of the step's layer; empty without any
  std::vector<int32_t> sequences_{-1};  // whose routes each history of the predictor holds
  std::vector<int> histories_{0};       // of each row of the step
  float worth_ = 0.45f;                 // the fraction of the latest prefetches that was used
  float waste_left_ = 0.f, most_waste_ = 0.f;  // experts that may yet be prefetched in vain
  int probe_every_ = 0, until_probe_ = 0;      // steps
  FeedCounts counts_;
  bool predicts_ = true, is_prompt_ = false;
  std::atomic<bool> failed_{false};
};

}  // namespace sharpi
