// Decides which experts have a slot: the state that all policies share, and the interface that the
// expert store calls.
//
// A policy decides and moves nothing: every change is a Swap for its caller to carry out, and the
// policy's own state is already the state after it. tests/experts/reference defines the same
// decisions; tests replay traces through both.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "policy_slots.h"
#include "slot_rules.h"

namespace sharpi {

// `expert` becomes resident in its layer; `victim` is evicted, or -1 when a free slot is taken.
// `expert` is -1 when a slot goes.
struct Swap {
  int32_t layer, expert, victim;
};

enum class PolicyKind : int32_t {
  Slru = kSlru,
  LearnedKeep = kLearnedKeep,
  Lru = kLru,
  Lfru = kLfru,
  Static = kStatic,
  LearnedPrefetch = kLearnedPrefetch
};

struct PolicySettings {
  PolicyKind kind = PolicyKind::Slru;
  int num_layers = 0, num_experts = 0, experts_per_token = 0;
  std::vector<int> slots;                    // per layer; 0 where a layer has none
  std::vector<std::vector<int32_t>> pinned;  // per layer, or empty
  std::vector<std::vector<int32_t>> warm;    // per layer, or empty: fill free slots at the start
  bool admission = false;     // slru: a miss takes a slot only if it was used more than the victim
  float load_budget = 0;      // learned-prefetch: prefetches per token
  bool moving_slots = false;  // learned: slots move to the layers that need them
  int warm_pin = 0;           // experts that a layer pins by itself; 0 pins none
  // Accesses of all layers before the warm pin. A fixed set that counts uses is first chosen after
  // a 64th of them, and again whenever they have doubled.
  int64_t warm_pin_after = 0;

  // The layers with slots are those from the first to below the end: of a part of a model, some.
  int first_layer() const;
  int end_layer() const;
};

// Lookups and loads of one layer. Early loads are those of experts that the token had not missed;
// an early hit is the first use of such an expert.
struct LayerCounts {
  int64_t accesses = 0, hits = 0, loads = 0, early_loads = 0, early_hits = 0;
};

class SlotPolicy {
 public:
  explicit SlotPolicy(const PolicySettings& settings);
  virtual ~SlotPolicy() = default;

  // Loads pinned experts, and warm ones into free slots, before the first token. Without this call
  // pinned experts take their slots when first used.
  void start(std::vector<Swap>& swaps);
  // Uses a token's distinct experts of a layer, best first. All are looked up before anything
  // changes; a victim is never one of them. A swap for another layer is a prefetch.
  void use(int layer, const int32_t* experts, int count, std::vector<Swap>& swaps);
  // Uses the experts of a batch's routes (tokens, k), in token order. Each distinct expert is one
  // access; experts of the batch take free slots, those used most at its end first, and nothing is
  // evicted.
  void use_batch(int layer, const int32_t* routes, int tokens, int k, std::vector<Swap>& swaps);
  // Ends a token or batch after its last layer, and returns the swaps that waited for that.
  void end_token(std::vector<Swap>& swaps);
  // Gives the slot of `leaves` to `enters`, as another tier decided; between steps. It is no load.
  // Returns false, and changes nothing, unless only `leaves` is resident, and is not pinned.
  bool exchange(int layer, int leaves, int enters);
  // Gives a layer `num_slots` slots. Where it had more, experts leave, those worth least first: a
  // swap without an expert for each. Experts in use stay, so that the layer may keep more.
  virtual void resize(int layer, int num_slots, std::vector<Swap>& swaps);
  // Begins a new, unrelated text: forgets the previous token, keeps what was learned.
  virtual void reset_sequence() {}
  // Allows or forbids loads of experts that were not missed; called between steps.
  virtual void set_prefetching(bool) {}
  // Without it, a learned policy evicts the oldest expert for each of them and learns nothing;
  // called between steps.
  virtual void set_learning(bool) {}

  const PolicySettings& settings() const { return settings_; }
  int num_slots(int layer) const { return layers_[layer].num_slots(); }
  bool resident(int layer, int expert) const { return layers_[layer].resident(expert); }
  // Returns true if a slot of the layer is free, and an expert that is used next may take it.
  bool takes_free(int layer, int expert) const {
    return layers_[layer].has_free() && may_take_free(layer, expert);
  }
  bool pinned(int layer, int expert) const { return layers_[layer].pinned(expert); }
  const LayerCounts& counts(int layer) const { return counts_[layer]; }
  int64_t access_count(int layer, int expert) const { return layers_[layer].access_count(expert); }
  int64_t total_misses() const { return total_accesses_ - total_hits_; }
  // Accesses and hits before the warm pin; both are -1 until it happens.
  int64_t accesses_before_pin() const { return accesses_before_pin_; }
  int64_t hits_before_pin() const { return hits_before_pin_; }

 protected:
  // Called when the token's experts were looked up and counted, and nothing is swapped yet.
  virtual void on_access(int layer, const int32_t* experts, int count) = 0;
  // Learns from a batch. `routes` are its last tokens, at most kBatchMemory.
  virtual void on_batch_access(int layer, const int32_t* routes, int tokens, int k) = 0;
  // Returns the priority of an expert of a batch; those with the highest are kept.
  virtual float priority(int layer, int expert) const = 0;
  // Returns the expert to evict when no slot is free, or -1.
  virtual int victim(int layer) const = 0;
  virtual bool admits(int layer, int expert, int victim) const = 0;
  virtual bool may_take_free(int, int) const { return true; }
  virtual void inserted(int, int) {}
  virtual void evicted(int, int) {}
  virtual void was_pinned(int, int) {}
  virtual void after_use(int, std::vector<Swap>&) {}
  virtual void token_ended(std::vector<Swap>&) {}

  void insert(int layer, int expert, int victim, bool early, std::vector<Swap>& swaps);
  // Takes a slot from `layer`; where none is free, evicts `victim` with it.
  void take_slot(int layer, int victim, std::vector<Swap>& swaps);
  void move_slot(int layer, int to_layer, int victim, std::vector<Swap>& swaps);
  const LayerSlots& slots(int layer) const { return layers_[layer]; }
  // Returns true if a fixed set is chosen by uses, which are still counted.
  bool counts_uses() const { return settings_.warm_pin > 0; }
  int64_t total_early_loads() const { return total_early_loads_; }
  // Returns how many misses early loads saved, less those they caused: of experts that would still
  // be resident.
  int64_t total_saved() const { return total_saved_; }

  // Returns the resident expert with the least `key` among those that may leave; ties go to the
  // older, then to the lower id. Returns -1 if none may leave.
  template <class Key>
  int least(int layer, Key key) const {
    const LayerSlots& l = layers_[layer];
    int best = -1;
    float best_key = 0;
    for (int32_t e : l.residents()) {
      if (l.pinned(e) || l.in_use(e)) continue;
      const float k = key(e);
      if (best < 0 || k < best_key || (k == best_key && l.before(e, best))) best = e, best_key = k;
    }
    return best;
  }

  PolicySettings settings_;
  std::vector<LayerSlots> layers_;

 private:
  void place(int layer, int expert, std::vector<Swap>& swaps);
  void note_early_use(int layer, int expert);
  void note_early_waste(int layer, int expert);
  void note_miss(int layer, int expert);
  void note_victim(int layer, int expert, int victim, bool early);
  int least_used(int layer) const;
  void fill_warm(int layer, std::vector<Swap>& swaps);
  void fill_from_batch(int layer, std::vector<int32_t>& experts, std::vector<Swap>& swaps);
  void pin(int layer, const std::vector<int32_t>& experts, std::vector<Swap>* swaps);
  void warm_pin(std::vector<Swap>& swaps);
  // Returns the number of accesses of the next warm pin; `last` are those of the last one, or -1.
  int64_t pin_after(int64_t last) const;

  std::vector<LayerCounts> counts_;
  std::vector<std::vector<uint8_t>> early_;  // loaded before use and not used since
  // Per layer and expert that was loaded early and not used since: the expert that would be
  // resident in its place; else -1.
  std::vector<std::vector<int32_t>> displaced_;
  std::vector<int32_t> missed_;
  int64_t total_accesses_ = 0, total_hits_ = 0;
  int64_t total_early_loads_ = 0, total_saved_ = 0;
  int64_t accesses_before_pin_ = -1, hits_before_pin_ = -1;
  int64_t next_pin_ = 0;  // in accesses
};

std::unique_ptr<SlotPolicy> make_policy(const PolicySettings& settings);

}  // namespace sharpi
