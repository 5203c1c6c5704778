// An indexer: scores all earlier positions by small keys of its own, and chooses those that a
// token's attention reads.
#include <algorithm>
#include <array>
#include <vector>

#include "attention/attend_span.h"
#include "ops.h"
#include "runtime/program.h"

namespace sharpi {
namespace {

AttentionParams attention_of(const ChooseParams& p) {
  AttentionParams a{};
  a.queries = p.queries, a.cache = p.cache, a.num_heads = p.num_heads;
  a.scale = p.scale, a.precision = p.precision;
  return a;
}

// Returns a number that is larger for a larger score; a NaN is the largest, as for torch.topk.
uint32_t rank_of(float score) {
  if (score != score) return UINT32_MAX;
  uint32_t bits;
  const float positive = score + 0.f;  // both zeros are alike
  memcpy(&bits, &positive, sizeof bits);
  return bits >> 31 ? ~bits : bits | 1u << 31;
}

constexpr int kBinShift = 52, kBins = 1 << 12;  // keys by their first bits

class Indexer {
 public:
  Indexer(const ChooseParams& p, const Program& program, uint8_t* const* scores)
      : p_(p),
        span_(attention_of(p), program.isa),
        scores_(scores),
        stride_((size_t(program.max_positions) + kPage - 1) / kPage * kPage),
        choices_(p.weights ? 1 : p.num_heads) {}

  bool is_chosen(const Step& step, int token) const {
    return step.slot(token) / p_.block >= p_.count;
  }
  int choices() const { return choices_; }

  // Tells whether spans of positions are shared among threads; else a task takes a token.
  bool splits(const Step& step) const { return step.num_tokens <= kSplitDecodes; }
  int max_spans(const Step& step) const {
    int last = 0;
    for (int t = 0; t < step.num_tokens; t++) last = std::max(last, step.slot(t));
    return last / kSpan + 1;
  }

  float* shared_scores(int token, int choice) const {
    return reinterpret_cast<float*>(*scores_) + (size_t(token) * choices_ + choice) * stride_;
  }

  // Computes the scores of the positions [begin, end), of which `begin` is a page's first. Those of
  // a choice are `stride` after those of the one before.
  void score(const Step& step, int token, int begin, int end, float* out, size_t stride) const {
    thread_local std::vector<Queries> groups;
    thread_local std::vector<uint8_t> memory;
    groups.clear();
    memory.resize(size_t(p_.num_heads + kQueries - 1) / kQueries * span_.prepared_bytes());
    for (int h = 0; h < p_.num_heads; h += kQueries) {
      Queries& q = groups.emplace_back();
      for (int i = h; i < std::min(h + kQueries, p_.num_heads); i++) q.add(token, i, nullptr);
      span_.prepare(q, memory.data() + h / kQueries * span_.prepared_bytes());
    }
    span_.scores(step, 0, groups, begin, end, [&](const Queries& q, int at, float own[][kPage]) {
      for (int i = 0; i < q.count; i++) {
        if (!p_.weights) memcpy(out + q.heads[i] * stride + at, own[i], sizeof own[i]);
        else
          add(own[i], p_.weights[size_t(token) * p_.num_heads + q.heads[i]], q.heads[i], out + at);
      }
    });
  }

  // Writes the best blocks of a token, in ascending order.
  void choose(const Step& step, int token, int choice, const float* scores) const {
    const int end = step.slot(token) + 1, blocks = (end - 1) / p_.block + 1;
    thread_local std::vector<uint64_t> keys;
    std::array<int, kBins> counts{};
    keys.resize(size_t(blocks));
    for (int b = 0; b < blocks; b++) {
      const int first = b * p_.block, count = std::min(p_.block, end - first);
      const uint32_t rank =
          b >= blocks - p_.local ? UINT32_MAX : rank_of(best(scores + first, count));
      keys[b] = uint64_t(rank) << 32 | uint32_t(~b);
      counts[keys[b] >> kBinShift]++;
    }
    const uint64_t least = least_chosen(keys, counts);
    int32_t* out = p_.blocks + (size_t(token) * choices_ + choice) * p_.count;
    for (int b = 0; b < blocks; b++)
      if (keys[b] >= least) *out++ = b;
  }

 private:
  // Returns the smallest of the largest keys. `counts`: how many keys have the same first bits;
  // only those of one such bin are put in order.
  uint64_t least_chosen(const std::vector<uint64_t>& keys,
                        const std::array<int, kBins>& counts) const {
    int left = p_.count, bin = kBins - 1;
    for (; left > counts[bin]; bin--) left -= counts[bin];
    thread_local std::vector<uint64_t> own;
    own.clear();
    for (const uint64_t key : keys)
      if (int(key >> kBinShift) == bin) own.push_back(key);
    std::nth_element(own.begin(), own.begin() + left - 1, own.end(), std::greater<>());
    return own[size_t(left) - 1];
  }

  // Returns the largest of a block's scores.
  static float best(const float* scores, int count) {
    constexpr int kLanes = 8;
    if (count == 1) return *scores;
    float most[kLanes];
    std::fill(most, most + kLanes, -INFINITY);
    int i = 0;
    for (; i + kLanes <= count; i += kLanes)
      for (int j = 0; j < kLanes; j++) most[j] = scores[i + j] > most[j] ? scores[i + j] : most[j];
    for (; i < count; i++) most[0] = std::max(most[0], scores[i]);
    return *std::max_element(most, most + kLanes);
  }

  // Adds a head's scores above 0 to those of the heads before it.
  static void add(const float* own, float weight, int head, float* sums) {
    for (int i = 0; i < kPage; i++) {
      const float part = weight * (own[i] < 0 ? 0.f : own[i]);
      sums[i] = head ? sums[i] + part : part;
    }
  }

  const ChooseParams p_;
  const SpanAttention span_;
  uint8_t* const* scores_;
  const size_t stride_;
  const int choices_;
};

class ScorePositions : public Stage {
 public:
  explicit ScorePositions(const Indexer& indexer) : indexer_(indexer) {}
  int num_tasks(const Step& step) const override {
    return step.num_tokens * (indexer_.splits(step) ? indexer_.max_spans(step) : 1);
  }
  void run(const Step& step, int task, int, Worker&) const override {
    if (!indexer_.splits(step)) return whole(step, task);
    const int spans = indexer_.max_spans(step), token = task / spans;
    const int begin = task % spans * kSpan, end = std::min(begin + kSpan, step.slot(token) + 1);
    if (begin >= end || !indexer_.is_chosen(step, token)) return;
    float* first = indexer_.shared_scores(token, 0);
    indexer_.score(step, token, begin, end, first, indexer_.shared_scores(token, 1) - first);
  }

 private:
  void whole(const Step& step, int token) const {
    if (!indexer_.is_chosen(step, token)) return;
    thread_local std::vector<float> scores;
    const size_t stride = size_t(step.slot(token) / kPage + 1) * kPage;
    scores.resize(stride * indexer_.choices());
    indexer_.score(step, token, 0, step.slot(token) + 1, scores.data(), stride);
    for (int c = 0; c < indexer_.choices(); c++)
      indexer_.choose(step, token, c, scores.data() + c * stride);
  }

  const Indexer indexer_;
};

class ChooseBest : public Stage {
 public:
  explicit ChooseBest(const Indexer& indexer) : indexer_(indexer) {}
  int num_tasks(const Step& step) const override {
    return indexer_.splits(step) ? step.num_tokens * indexer_.choices() : 0;
  }
  void run(const Step& step, int task, int, Worker&) const override {
    const int token = task / indexer_.choices(), choice = task % indexer_.choices();
    if (indexer_.is_chosen(step, token))
      indexer_.choose(step, token, choice, indexer_.shared_scores(token, choice));
  }

 private:
  const Indexer indexer_;
};

}  // namespace

void add_choose(Program& program, const ChooseParams& p) {
  const size_t pages = (size_t(program.max_positions) + kPage - 1) / kPage;
  const size_t choices = p.weights ? 1 : size_t(p.num_heads);
  const int tokens = std::min(program.max_tokens, kSplitDecodes);
  uint8_t* const* scores =
      program.request(Scratch::Partials, tokens * choices * pages * kPage * sizeof(float));
  const Indexer indexer(p, program, scores);
  program.add<ScorePositions>(indexer);
  program.add<ChooseBest>(indexer);
}

}  // namespace sharpi
