// The arithmetic of recent_uses.h.
#include "recent_uses.h"

namespace sharpi {
namespace {

constexpr float kKept[kSpans] = {kKeptOfShortSpan, kKeptOfLongSpan};

}  // namespace

RecentUses::RecentUses(bool is_kept, size_t stride) : num_spans_(is_kept ? kSpans : 0) {
  for (int s = 0; s < num_spans_; s++) {
    weights_[s].resize(stride);
    counts_[s].resize(stride);
    previous_[s].resize(stride);
  }
}

void RecentUses::count(const int* used, int num_used) {
  for (int s = 0; s < num_spans_; s++) {
    previous_[s] = counts_[s];
    for (float& count : counts_[s]) count *= kKept[s];
    for (int i = 0; i < num_used; i++) counts_[s][used[i]] += 1 - kKept[s];
  }
}

void RecentUses::add_to(float* scores) const {
  for (int s = 0; s < num_spans_; s++)
    for (size_t e = 0; e < weights_[s].size(); e++) scores[e] += weights_[s][e] * counts_[s][e];
}

void RecentUses::follow(const float* error) {
  for (int s = 0; s < num_spans_; s++)
    for (size_t e = 0; e < weights_[s].size(); e++)
      weights_[s][e] += kRecentRate * (error[e] * previous_[s][e]);
}

}  // namespace sharpi
