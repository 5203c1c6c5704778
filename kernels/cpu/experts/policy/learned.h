// A policy that learns online which experts come next, and swaps experts where that gains more than
// a margin.
//
// The margin is adapted so that loads meet a budget. The five variants differ in what they load and
// when they decide: retain (this token's misses, at its end), keep (a miss, at once and without a
// margin: for a tier that had to read it anyway), prefetch at the token's end, prefetch two layers
// ahead, and both of keep and prefetch two layers ahead, where the budget is for prefetches alone.
//
// The ones that decide two layers ahead learn what a slot is worth to an expert: a hit at its next
// use, and afterwards what it is worth above the threshold at which experts are evicted, but never
// more than the margin, for which it could be loaded later.
//
// A prefetch costs a read of its own. Where more than four of them save one miss, the budget for
// prefetches shrinks, and grows again once they save more.
#pragma once
#include <optional>

#include "learned_contexts.h"
#include "learned_map.h"
#include "learned_within.h"
#include "policy.h"

namespace sharpi {

class Learned : public SlotPolicy {
 public:
  explicit Learned(const PolicySettings& settings);
  void reset_sequence() override;
  // With `prefetches` false, the variants that prefetch load only experts that were missed, and
  // keep or retain them as usual. `learned-keep` then computes nothing for prefetches.
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
  bool decides_ahead() const {
    return settings_.kind == PolicyKind::Learned || settings_.kind == PolicyKind::LearnedPrefetch;
  }
  bool skips_prefetch_scores() const { return within_ && !(prefetches_ && learns_); }
  bool only_keeps() const { return settings_.kind == PolicyKind::LearnedKeep; }
  const float* scores(int layer) const {
    return only_keeps() ? within_->scores(layer) : maps_[layer].scores();
  }
  void gather(int layer, Age age);
  // Returns true if the layer has experts.
  bool has_route(int layer) const { return !tokens_[kPresent].experts[layer].empty(); }
  void step(int layer);
  void score_within(int layer);
  int score_ahead(int layer);
  void swap(int layer, std::vector<Swap>& swaps);
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
  void adapt_margin();
  int64_t counted_loads() const;
  void adapt_allowance();

  std::vector<float> rank_weights_;
  std::vector<LearnedSource> sources_;
  std::optional<LearnedContexts> contexts_;
  std::optional<LearnedWithin> within_;  // used if missed experts are kept at once
  std::vector<LearnedMap> maps_;         // used by the other variants
  std::vector<float> threshold_;         // per layer: the score of the expert to evict, averaged
  std::vector<uint8_t> scored_;          // per layer: 1 if there is a score to learn from
  Token tokens_[kNumAges];
  std::vector<std::vector<int32_t>> batch_;  // per layer: the routes of a batch's last tokens
  size_t batch_tokens_ = 0;
  std::vector<MapInput> inputs_;
  float margin_ = 0.15f;
  int64_t loads_seen_ = 0, tokens_seen_ = 0;
  float allowance_ = 1.f;  // the fraction of the budget that prefetches may take
  int64_t early_hits_seen_ = 0, early_wasted_seen_ = 0, saved_seen_ = 0;
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
