// One layer's slots: which experts are resident, pinned or in use, and how recently and often each
// expert was used.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace sharpi {

class LayerSlots {
 public:
  LayerSlots(int num_experts, int num_slots)
      : num_slots_(num_slots),
        place_(num_experts, -1),
        pinned_(num_experts),
        used_(num_experts, -1),
        stamp_(num_experts, -1),
        count_(num_experts) {}

  int num_slots() const { return num_slots_; }
  bool has_free() const { return int(residents_.size()) < num_slots_; }
  bool resident(int e) const { return place_[e] >= 0; }
  bool pinned(int e) const { return pinned_[e]; }
  bool in_use(int e) const { return active_ && used_[e] == clock_; }
  int64_t last_used(int e) const { return used_[e]; }
  int64_t clock() const { return clock_; }
  int64_t access_count(int e) const { return count_[e]; }
  // The resident experts, in no order.
  const std::vector<int32_t>& residents() const { return residents_; }
  // Returns true if `a` entered its place in the order of recency before `b`; lower ids come first
  // within a token.
  bool before(int a, int b) const { return stamp_[a] != stamp_[b] ? stamp_[a] < stamp_[b] : a < b; }

  void begin_use() { clock_++, active_ = true; }
  void end_use() { active_ = false; }
  void use(int e) { used_[e] = stamp_[e] = clock_; }
  void count(int e, int64_t times) { count_[e] += times; }
  void freshen(int e) { stamp_[e] = clock_; }
  void pin(int e) { pinned_[e] = true; }
  void unpin_all() { std::fill(pinned_.begin(), pinned_.end(), 0); }

  void insert(int e) {
    place_[e] = int32_t(residents_.size());
    residents_.push_back(e);
  }
  void remove(int e) {
    const int32_t last = residents_.back();
    residents_[place_[e]] = last;
    place_[last] = place_[e];
    residents_.pop_back();
    place_[e] = -1;
  }
  // Adds `change` slots. Where it is negative, the caller makes sure that slots are free.
  void resize(int change) { num_slots_ += change; }
  void replace(int e, int victim) {
    place_[e] = place_[victim];
    residents_[place_[e]] = e;
    place_[victim] = -1;
  }

 private:
  int num_slots_;
  int64_t clock_ = 0;           // uses of this layer
  bool active_ = false;         // a token's experts are in use until it ends
  std::vector<int32_t> place_;  // index among the residents, or -1
  std::vector<int32_t> residents_;
  std::vector<uint8_t> pinned_;
  std::vector<int64_t> used_, stamp_, count_;
};

}  // namespace sharpi
