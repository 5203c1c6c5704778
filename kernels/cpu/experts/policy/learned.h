// A policy that learns online which experts come next, and swaps experts where that gains more than
// a margin.
//
// The margin is steered so that loads meet a budget. The four variants differ in what they load and
// when they decide: retain (this token's misses, at its end), keep (a miss, at once and without a
// margin: for a tier that had to read it anyway), prefetch at the token's end, and prefetch two
// layers ahead.
#pragma once
#include "learned_map.h"
#include "policy.h"

namespace sharpi {

class Learned : public SlotPolicy {
 public:
  explicit Learned(const PolicySettings& settings);
  void reset_sequence() override;

 protected:
  void touched(int layer, const int32_t* experts, int count) override;
  void touched_batch(int layer, const int32_t* routes, int tokens, int k) override;
  float worth(int layer, int expert) const override {
    return float(slots(layer).access_count(expert));
  }
  int victim(int layer) const override;
  bool admits(int, int, int) const override { return false; }
  void after_use(int layer, std::vector<Swap>& swaps) override;
  void token_ended(std::vector<Swap>& swaps) override;

 private:
  // A layer whose experts are inputs of the map: absolute or relative to the predicted layer, of
  // this token or of the next.
  struct Source {
    bool is_absolute;
    int layer;
    int of_next_token;
  };
  // The experts of one token, by layer.
  struct Token {
    bool is_known = false;
    std::vector<std::vector<int32_t>> experts;
  };
  enum Age { kBefore, kPresent, kNext, kNumAges };

  static std::vector<Source> choose_sources(const PolicySettings& settings);
  void gather(int layer, Age age);
  // Returns true if the layer has experts.
  bool has_route(int layer) const { return !tokens_[kPresent].experts[layer].empty(); }
  void step(int layer);
  void step_within(int layer);
  int score_after(int layer);
  void swap(int layer, std::vector<Swap>& swaps);
  bool is_used(int layer, int expert) const;
  int best_outside(int layer, bool only_used) const;
  void measure_need(int layer);
  void move_slots(std::vector<Swap>& swaps);
  void roll();
  void end_step(std::vector<Swap>* swaps);
  void replay_batch();
  void steer();

  std::vector<Source> sources_;
  std::vector<LearnedMap> maps_;
  std::vector<uint8_t> scored_;  // per layer: 1 if there is a score to learn from
  std::vector<float> rank_weights_;
  Token tokens_[kNumAges];
  std::vector<std::vector<int32_t>> batch_;  // per layer: the routes of a batch's last tokens
  size_t batch_tokens_ = 0;
  std::vector<MapInput> inputs_;
  // per layer: the inputs of the score to learn from
  std::vector<std::vector<MapInput>> inputs_before_;
  float margin_ = 0.15f;
  int64_t loads_seen_ = 0, tokens_seen_ = 0;
  std::vector<float> need_;  // per layer: the gain or loss by one slot more or less
};

}  // namespace sharpi
