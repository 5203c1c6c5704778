// The combinations of learned_contexts.h.
#include "learned_contexts.h"

#include <algorithm>

namespace sharpi {
namespace {

// Keys that add nothing if the layer's own route equals the one below.
constexpr bool kRepeats[kContexts] = {false, false, false, true, true, false, true, false};

// A hash that experts are added to, one after the other.
struct Key {
  uint32_t value;

  explicit Key(uint32_t context) : value((context + 1) * 0x9e3779b1u) {}
  void add(uint32_t expert) {
    value = (value ^ expert) * 2654435761u;
    value ^= value >> 15;
    value *= 2246822519u;
    value ^= value >> 13;
  }
  void add_best(const std::vector<int32_t>& route, size_t count) {
    for (size_t i = 0; i < std::min(count, route.size()); i++) add(uint32_t(route[i]));
  }
  // Adds the best experts in the order of their ids.
  void add_set(const std::vector<int32_t>& route, size_t count) {
    std::vector<int32_t> ids(route.begin(), route.begin() + std::min(count, route.size()));
    std::sort(ids.begin(), ids.end());
    for (int32_t id : ids) add(uint32_t(id));
  }
};

}  // namespace

LearnedContexts::LearnedContexts(const PolicySettings& settings, int first_row, int ahead)
    : first_layer_(settings.first_layer()),
      end_layer_(settings.end_layer()),
      first_row_(first_row),
      ahead_(ahead),
      mask_(uint32_t(num_rows(settings.num_experts)) - 1) {}

int LearnedContexts::num_rows(int num_experts) {
  int rows = kMostTableRows;
  while (rows > 1 && rows * num_experts > kMostTableFloats) rows /= 2;
  return rows;
}

// Returns the newest known route of a layer: that of the next token, or for a layer below the first
// that of the last layers of the present one.
const std::vector<int32_t>& LearnedContexts::newest(int layer, const Routes& present,
                                                    const Routes& next) const {
  if (layer >= first_layer_) return next[layer];
  const int count = end_layer_ - first_layer_;
  return present[end_layer_ - 1 - (first_layer_ - 1 - layer) % count];
}

void LearnedContexts::append(int layer, const Routes& present, const Routes& next,
                             std::vector<MapInput>& inputs) const {
  const int second_layer = std::min(first_layer_ + 1, end_layer_ - 1);
  const bool has_first = first_layer_ <= layer - ahead_;
  const bool has_second = second_layer <= layer - ahead_;
  const std::vector<int32_t>& below = newest(layer - ahead_, present, next);
  const std::vector<int32_t>& beneath = newest(layer - ahead_ - 1, present, next);
  const std::vector<int32_t>& first = (has_first ? next : present)[first_layer_];
  Key keys[kContexts] = {Key(0), Key(1), Key(2), Key(3), Key(4), Key(5), Key(6), Key(7)};
  keys[0].add_set(first, kRanks);
  keys[1].add_best(below, 2), keys[1].add_best(beneath, 2);
  keys[2].add_set(present[layer], kRanks);
  keys[3].add_best(below, 2);
  keys[4].add_set(below, 2);
  if (below.size() > 2) keys[4].add(uint32_t(below[2]));
  keys[5].add_set(first, kRanks), keys[5].add_set((has_second ? next : present)[second_layer], 2);
  keys[6].add_set(below, kRanks);
  keys[7].add_set(first, 2), keys[7].add_set(below, 2);
  for (size_t i = 0; i < std::size(keys); i++)
    if (ahead_ || !kRepeats[i]) inputs.push_back({first_row_ + int(keys[i].value & mask_), 1.f});
}

}  // namespace sharpi
