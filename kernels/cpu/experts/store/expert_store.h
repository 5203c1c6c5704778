// Experts that are stored in a file: which are in RAM, which threads wait for them, and when they
// are read.
//
// The slot policy decides which experts stay. An expert that it keeps is read straight into its
// slot, whose former expert is never in use; one that it does not keep is read into a staging
// buffer and leaves when it is released. One thread acquires, releases and ends tokens; any thread
// may wait, or change the number of slots.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "expert_store_buffers.h"
#include "experts/policy/policy.h"

namespace sharpi {

struct StoreSettings {
  ReaderSettings reader;
  std::vector<LayerLayout> layers;
  int num_staging = 0;  // at least one
};

// A step is part of a prompt, or decodes a token of each of some sequences.
enum class Phase : int { Prompt, Decode };
constexpr int kPhases = 2;

// One layer's accesses in the steps of one phase, in experts, and their cost. Every access is a
// hit, late, or a load.
struct StoreCounts {
  int64_t accesses = 0;       // distinct experts of each step
  int64_t hits = 0;           // in memory when needed
  int64_t late = 0;           // in flight when needed
  int64_t loads = 0;          // not requested before they were needed
  int64_t loaded_bytes = 0;   // bytes of the loads
  int64_t stall_ns = 0;       // nanoseconds in which at least one thread waited
  int64_t prefetched = 0;     // experts requested before they were needed
  int64_t prefetch_used = 0;  // prefetched experts that were used before they were evicted
  int64_t wasted_bytes = 0;   // bytes read early and never used
};

// Reads into a layer's buffers that belong to no phase.
struct LayerReads {
  int64_t fills = 0;       // experts of a first set, or of a warm pin
  int64_t bytes_read = 0;  // all bytes read from the file, with prefetches and alignment
};

// Accesses of all layers, and how many of them were hits.
struct HitCounts {
  int64_t accesses = -1, hits = -1;
};

class ExpertStore {
 public:
  // The policy has to outlive the store. Throws std::system_error naming a file, or std::bad_alloc.
  ExpertStore(const StoreSettings& settings, SlotPolicy& policy);

  // The number of experts that can be held besides the slots: a caller that acquires more misses
  // has to release some before it waits for the next; the store reads on as buffers become free.
  int max_group() const { return int(buffers_.staging().size()); }
  size_t memory_bytes() const { return buffers_.bytes(); }

  // Reads the experts that the policy pins, before the first token.
  void start();
  // Looks up the routes of a step in a layer, (tokens, k), asks the policy, and starts the missing
  // reads in the order of expert ids. Every expert stays until it is released. A batch is part of a
  // prompt; a step that is no batch has one token of each of some sequences. `requested`, empty or
  // by expert, has the ranks that compute some of them, or -1: those are none of the store's.
  void acquire(int layer, const int32_t* routes, int tokens, int k, bool is_batch, Phase phase,
               const std::vector<int8_t>& requested = {});
  bool is_ready(int layer, int expert) const;
  // Returns true if an expert has no buffer, and would not get a free slot.
  bool lacks(int layer, int expert) const;
  // Returns true if an acquired expert is in a staging buffer, or waits for one.
  bool takes_staging(int layer, int expert) const;
  // Blocks until an acquired expert is there. Returns false where it cannot be read: see
  // `last_fault`.
  bool wait(int layer, int expert);
  void release(int layer, int expert);
  // Releases all experts of the layer that are still acquired, also those that were never waited
  // for.
  void release(int layer);
  // Prefetches experts if nothing else is to be read and buffers are free. Appends those that will
  // be read to `begun`.
  void prefetch(int layer, const int32_t* experts, int count, std::vector<int32_t>& begun);
  // Returns true if an expert's bytes are in a slot; between steps.
  bool holds(int layer, int expert) const;
  // Gives the slot of `leaves` to `enters`, which another tier gives back: `pieces` are its bytes,
  // null for a piece without any. Between steps. Returns false, and changes nothing, where `leaves`
  // is not in a slot or is pinned, or `enters` has a buffer.
  bool exchange(int layer, int leaves, int enters, const uint8_t* const* pieces);
  // Gives each layer this many slots, (layers). Memory of slots that go is given to the system. Any
  // thread may call it; layers in use keep theirs.
  void resize(const int32_t* slots);
  // Returns the number of slots that a layer has now.
  int num_slots(int layer) const;
  // Set what the policy does; between steps, also beside `resize`.
  void set_learning(bool learns);
  void set_prefetching(bool prefetches);
  // Ends a step after its last layer.
  void end_token();
  void reset_sequence();

  // Returns the addresses of a layer's experts, (experts); only those of experts that were waited
  // for are valid.
  const uint8_t* const* table(int layer, int piece) const { return layers_[layer]->table(piece); }
  int num_layers() const { return int(layers_.size()); }
  int num_experts(int layer) const { return layers_[layer]->num_experts(); }
  int experts_per_token() const { return policy_.settings().experts_per_token; }
  StoreCounts counts(int layer, Phase phase) const;
  LayerReads reads(int layer) const;
  // Writes how often each expert of a layer was used, (experts,): by each token of a step.
  void uses(int layer, int64_t* uses) const;
  // The counts before the warm pin; negative until it happens.
  HitCounts before_pin() const;
  ReaderCounts reader_counts() const { return reader_.counts(); }
  bool is_direct() const { return reader_.is_direct(); }
  std::string last_fault() const { return reader_.last_fault(); }

 private:
  // Measures the time in which at least one thread waited for a layer.
  struct Stall {
    int waiting = 0;
    std::chrono::steady_clock::time_point since;
    std::array<int64_t, kPhases> ns{};
  };

  Entry& entry(int layer, int expert) const { return layers_[layer]->entry(expert); }
  std::vector<Buffer*> shrink(int layer, int num_slots);
  void grow(int layer, int num_slots);
  void use_each(int layer, const int32_t* routes, int tokens, int k,
                const std::vector<int8_t>& requested);
  void apply(const std::vector<Swap>& swaps, int layer_in_use);
  std::vector<Entry*> bind_all(const std::vector<Swap>& swaps, int layer_in_use);
  void fill(const std::vector<Swap>& swaps);
  void give_slot(const Swap& swap);
  void move_into(Entry& entry, Buffer* slot);
  void acquire_entry(Entry& entry);
  void demand(Entry& entry);
  void start_waiting();
  Buffer* take_staging();
  Buffer* free_staging();
  void abandon(Entry& entry);
  void note_waste(Entry& entry);
  bool may_predict() const;
  void release_entry(Entry& entry);
  void vacate(Entry& entry);
  void forget_bytes(Entry& entry);
  std::vector<LoadOrder> orders(const std::vector<Entry*>& entries);
  bool wait_slowly(Entry& entry);
  StoreCounts& counting(int layer) { return counts_[layer][int(phase_.load())]; }
  HitCounts all_hits() const;
  void begin_stall(int layer);
  void end_stall(int layer);

  std::vector<std::unique_ptr<StoreLayer>> layers_;
  StoreBuffers buffers_;
  SlotPolicy& policy_;
  mutable std::mutex lock_;
  std::mutex resize_lock_;      // taken before lock_
  std::deque<Entry*> waiting_;  // acquired, but no buffer is free for them yet
  std::vector<Swap> swaps_;
  std::vector<int32_t> distinct_;
  // of the present step; threads that wait read it
  std::atomic<Phase> phase_{Phase::Decode};
  std::vector<std::array<StoreCounts, kPhases>> counts_;  // by layer
  std::vector<int64_t> fills_;                            // by layer
  std::vector<std::vector<int64_t>> uses_;                // by layer and expert
  HitCounts before_pin_;
  mutable std::mutex stall_lock_;
  std::vector<Stall> stalls_;
  DirectReader reader_;  // the last member, so that its threads end first
};

}  // namespace sharpi
