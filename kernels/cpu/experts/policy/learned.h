// A policy that learns online which experts come next, and swaps experts where that gains more than
// a margin.
//
// learned-keep gives a missed expert a slot at once and without a margin: its tier had to read the
// expert anyway. learned-prefetch also prefetches, two layers ahead; its margin is adapted so that
// prefetches meet a budget.
//
// For prefetches it learns what a slot is worth to an expert: a hit at its next use, and afterwards
// what it is worth above the threshold at which experts are evicted, but never more than the
// margin, for which it could be loaded later.
//
// A prefetch costs a read of its own. From the first token on, all reads are limited by the misses
// that slru would have had, which a shadow of it counts. Where more than four prefetches save one
// miss, as counted by who would be resident without them, nearly none are made.
#pragma once
#include <optional>

#include "learned_contexts.h"
#include "learned_map.h"
#include "learned_within.h"
#include "policy.h"
#include "slru.h"

namespace sharpi {

class Learned : public SlotPolicy {
 public:
  explicit Learned(const PolicySettings& settings);
  void reset_sequence() override;
  // Without it, nothing is computed for prefetches.
  void resize(int layer, int num_slots, std::vector<Swap>& swaps) override;
  void set_prefetching(bool prefetches) override;
  void set_learning(bool learns) override;

 protected:
  void on_access(int layer, const int32_t* experts, int count) override;
  void on_batch_access(int layer, const int32_t* routes, int tokens, int k) override;
  float priority(int layer, int expert) const override {
    return float(slots(layer).access_count(expert));
  }
  int victim(int layer) const override;
  bool admits(int, int, int) const override { return !learns_; }
  void after_use(int layer, std::vector<Swap>& swaps) override;
  void token_ended(std::vector<Swap>& swaps) override;

 private:
  // The experts of one token, by layer.
  struct Token {
    bool is_known = false;
    Routes experts;
  };
  enum Age { kBefore, kPresent, kNext, kNumAges };

  void make_within();
  void make_maps();
  bool is_prefetcher() const { return settings_.kind == PolicyKind::LearnedPrefetch; }
  bool prefetches_now() const { return is_prefetcher() && prefetches_ && learns_; }
  const float* scores(int layer) const {
    return is_prefetcher() ? maps_[layer].scores() : within_->scores(layer);
  }
  void gather(int layer, Age age);
  // Returns true if the layer has experts.
  bool has_route(int layer) const { return !tokens_[kPresent].experts[layer].empty(); }
  void step(int layer);
  void score_within(int layer);
  int score_ahead(int layer);
  void prefetch(int layer, std::vector<Swap>& swaps);
  void keep_missed(int layer, std::vector<Swap>& swaps);
  int victim(int layer, const float* scores) const;
  // Returns the expert without a slot, of `among` if that is given, that scores most, or -1.
  int best_outside(int layer, const float* scores, const std::vector<int32_t>* among) const;
  void measure_threshold(int layer);
  void watch_need(int layer);
  void measure_need(int layer, const int32_t* used, int count);
  void move_slots(std::vector<Swap>& swaps);
  void roll();
  void end_step(std::vector<Swap>* swaps);
  void replay_batch();
  void adapt_credit();

  std::vector<float> rank_weights_;
  std::vector<LearnedSource> sources_;
  std::optional<LearnedContexts> contexts_;
  std::optional<LearnedWithin> within_;  // decides which missed experts are kept
  std::vector<LearnedMap> maps_;         // decide about prefetches
  std::vector<float> threshold_;         // per layer: the score of the expert to evict, averaged
  std::vector<uint8_t> scored_;          // per layer: 1 if there is a score to learn from
  Token tokens_[kNumAges];
  std::vector<std::vector<int32_t>> batch_;  // per layer: the routes of a batch's last tokens
  size_t batch_tokens_ = 0;
  std::vector<MapInput> inputs_;
  float margin_ = kFirstMargin;
  int64_t loads_seen_ = 0, tokens_seen_ = 0;
  float credit_ = 0.f;       // how much more prefetches may read than they have saved
  float paid_ = kLeastPaid;  // the misses that a prefetch saves
  int64_t misses_seen_ = 0, saved_seen_ = 0, slru_misses_seen_ = 0;
  std::unique_ptr<Slru> slru_;  // sees the same routes, and counts what it would have missed
  std::vector<Swap> slru_swaps_;
  bool prefetches_ = true, learns_ = true;
  // The experts that one slot more would keep, and one slot less would evict; -1 for none.
  struct Ends {
    bool is_known = false;
    int outside = -1, inside = -1;
  };
  std::vector<Ends> ends_;  // per layer, until its next use
  // Per layer: how often these two were used then.
  std::vector<float> gain_, loss_;
};

}  // namespace sharpi
