// Attention over the KV cache: distributes queries and spans over threads.
#include <algorithm>
#include <vector>

#include "attention/attend_span.h"
#include "attention/token_blocks.h"
#include "ops.h"
#include "runtime/program.h"

namespace sharpi {
namespace {

constexpr int kSplitTokens = 4;  // up to so many tokens, spans are shared among threads
constexpr int kSplitSpans = 64;  // and up to kSplitDecodes, each of its own sequence, with at most
                                 // this many spans each on average
constexpr int kSharedSpans = 4;  // from so many spans on, merging them is shared as well

// Returns the number of a head's partial results that there is room for: one per token and span.
size_t partials_a_head(size_t max_spans) {
  return std::max(kSplitTokens * max_spans,
                  kSplitDecodes * std::min<size_t>(max_spans, kSplitSpans));
}

class Attention : public Stage {
 public:
  Attention(const AttentionParams& params, const Program& program, uint8_t* const* partials)
      : p_(params),
        span_(params, program.isa),
        partials_(partials),
        group_(params.num_heads / params.cache.heads),
        max_spans_((program.max_positions + kSpan - 1) / kSpan) {}

  bool may_end_before() const override { return true; }

  // Decode: one task per KV head, token and span. Prefill: one per KV head and block of tokens, all
  // spans.
  int num_tasks(const Step& step) const override {
    if (splits(step)) return step.num_tokens * p_.cache.heads * max_spans(step);
    return count_blocks(step) * p_.cache.heads;
  }

  // Returns a span's first page; without a split, several tasks share it anyway.
  Bytes reads_first(const Step& step, int task) const override {
    const uint8_t* page = splits(step) ? first_page(step, task) : nullptr;
    return page ? Bytes{page, kv_head_bytes(p_.cache)} : Bytes{};
  }

  void run(const Step& step, int task, int next, Worker& worker) const override {
    if (splits(step))
      return split(step, task, next < 0 ? nullptr : first_page(step, next), worker.run);
    const int head = task % p_.cache.heads;
    thread_local std::vector<Queries> groups, seeing;
    TokenBlock block = find_block(step, task / p_.cache.heads);
    while (block.begin < block.end && !p_.sees_all(step.slot(block.end - 1))) block.end--;
    if (block.begin == block.end) return;
    gather(block, head, groups);
    float* later = place(groups);
    prepare(groups);
    const int end = step.slot(block.end - 1) / kSpan + 1;
    for (int span = span_.first_visible(step, block.begin) / kSpan; span < end; span++) {
      choose(step, groups, span, later, seeing);
      span_.attend(step, head, seeing, span, nullptr);
      merge(step, groups, span, later);
    }
    for (const Queries& q : groups)
      for (int i = 0; i < q.count; i++) span_.write(q.tokens[i], q.heads[i], q.partials[i]);
  }

  // Returns true if spans are shared among threads; otherwise pages are read once for several
  // tokens of a sequence.
  bool splits(const Step& step) const {
    if (step.num_tokens <= kSplitTokens) return true;
    if (step.num_tokens > kSplitDecodes) return false;
    for (int t = 1; t < step.num_tokens; t++)
      if (step.sequences[t] == step.sequences[t - 1]) return false;
    return size_t(step.num_tokens) * max_spans(step) <= partials_a_head(max_spans_);
  }

  int max_spans(const Step& step) const {
    int last = 0;
    for (int t = 0; t < step.num_tokens; t++)
      if (p_.sees_all(step.slot(t))) last = std::max(last, step.slot(t));
    return last / kSpan + 1;
  }

  // Returns the number of parts of a token's heads that are merged by different threads, where
  // there is enough to merge.
  int merged_apart(const Step& step) const {
    return max_spans(step) >= kSharedSpans ? p_.cache.heads : 1;
  }

  // Merges the spans of one of these parts of a token, in order.
  void finish(const Step& step, int token, int part) const {
    if (!p_.sees_all(step.slot(token))) return;
    const int spans = max_spans(step), heads = p_.num_heads / merged_apart(step);
    for (int head = part * heads; head < (part + 1) * heads; head++) {
      float* total = partial(token, head, 0, spans);
      for (int s = 1; s < spans; s++) span_.merge(total, partial(token, head, s, spans));
      span_.write(token, head, total);
    }
  }

 private:
  struct Task {
    int token, head, span;
  };
  Task split_task(const Step& step, int task) const {
    const int spans = max_spans(step);
    return {task / spans / p_.cache.heads, task / spans % p_.cache.heads, task % spans};
  }
  const uint8_t* first_page(const Step& step, int task) const {
    const Task t = split_task(step, task);
    return span_.first_page(step, t.token, t.head, t.span);
  }

  // Returns the queries' result for one of `spans`; the results of a token and head are adjacent.
  float* partial(int token, int head, int span, int spans) const {
    const size_t index = (size_t(token) * p_.num_heads + head) * spans + span;
    return reinterpret_cast<float*>(*partials_) + index * partial_floats(p_);
  }

  // The queries that a thread has prepared; all spans of a token and head share them.
  struct Prepared {
    const Attention* stage;
    uint64_t run;
    int token, head;
    bool operator==(const Prepared&) const = default;
  };

  void split(const Step& step, int task, const uint8_t* after, uint64_t run) const {
    const Task t = split_task(step, task);
    if (!p_.sees_all(step.slot(t.token))) return;
    const int spans = max_spans(step);
    thread_local Prepared last{};
    const Prepared own{this, run, t.token, t.head};
    thread_local std::vector<Queries> groups;
    groups.clear();
    for (int g = 0; g < group_; g += kQueries) {
      Queries& q = groups.emplace_back();
      for (int h = t.head * group_ + g; q.count < std::min(kQueries, group_ - g); h++)
        q.add(t.token, h, partial(t.token, h, t.span, spans));
    }
    prepare(groups, own == last);
    last = own;
    span_.attend(step, t.head, groups, t.span, after);
  }

  // Prepares groups of queries, unless the thread prepared the same ones in its last call.
  void prepare(std::vector<Queries>& groups, bool is_done = false) const {
    thread_local std::vector<uint8_t> memory;
    const size_t bytes = span_.prepared_bytes();
    memory.resize(groups.size() * bytes);
    for (size_t i = 0; i < groups.size(); i++)
      if (is_done) groups[i].prepared = memory.data() + i * bytes;
      else span_.prepare(groups[i], memory.data() + i * bytes);
  }

  // Gathers the queries of a block that share a KV head, as many together as a pass takes.
  void gather(TokenBlock block, int head, std::vector<Queries>& groups) const {
    groups.clear();
    const int together = std::max(1, kQueries / group_);
    for (int t = block.begin; t < block.end; t += together)
      for (int g = 0; g < group_; g += kQueries) {
        Queries& q = groups.emplace_back();
        for (int token = t; token < std::min(t + together, block.end); token++)
          for (int h = g; h < std::min(group_, g + kQueries); h++)
            q.add(token, head * group_ + h, nullptr);
      }
  }

  // Assigns memory to each query's result, and returns as much for their results of a later span.
  float* place(std::vector<Queries>& groups) const {
    thread_local std::vector<float> memory;
    const size_t floats = partial_floats(p_), of_group = floats * kQueries;
    memory.resize(2 * groups.size() * of_group + 16);
    float* at = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64 / 4;
    for (Queries& q : groups) place(q, at), at += of_group;
    return at;
  }
  void place(Queries& q, float* at) const {
    for (int i = 0; i < q.count; i++) q.partials[i] = at + i * partial_floats(p_);
  }

  // Chooses the groups that see a span. All but those that see their first one have their results
  // beside, in `later`.
  void choose(const Step& step, const std::vector<Queries>& groups, int span, float* later,
              std::vector<Queries>& seeing) const {
    seeing.clear();
    for (const Queries& q : groups) {
      if (span_.sees(step, q, span)) {
        seeing.push_back(q);
        if (span > span_.first_span(step, q)) place(seeing.back(), later);
      }
      later += partial_floats(p_) * kQueries;
    }
  }
  void merge(const Step& step, const std::vector<Queries>& groups, int span, float* later) const {
    for (const Queries& q : groups) {
      if (span > span_.first_span(step, q) && span_.sees(step, q, span))
        for (int i = 0; i < q.count; i++)
          span_.merge(q.partials[i], later + i * partial_floats(p_));
      later += partial_floats(p_) * kQueries;
    }
  }

  const AttentionParams p_;
  const SpanAttention span_;
  uint8_t* const* partials_;
  const int group_, max_spans_;
};

// Decode only: merges the spans of each head.
class MergeSpans : public Stage {
 public:
  explicit MergeSpans(const Attention& attention) : attention_(attention) {}
  int num_tasks(const Step& step) const override {
    return attention_.splits(step) ? step.num_tokens * attention_.merged_apart(step) : 0;
  }
  void run(const Step& step, int task, int, Worker&) const override {
    const int parts = attention_.merged_apart(step);
    attention_.finish(step, task / parts, task % parts);
  }

 private:
  const Attention attention_;
};

}  // namespace

void add_attention(Program& program, const AttentionParams& p) {
  const size_t spans = (program.max_positions + kSpan - 1) / kSpan;
  uint8_t* const* partials = program.request(
      Scratch::Partials, partials_a_head(spans) * p.num_heads * partial_floats(p) * sizeof(float));
  const Attention attention(p, program, partials);
  program.add<Attention>(attention);
  program.add<MergeSpans>(attention);
  if (p.chosen.blocks) add_attention_over_chosen(program, p);
}

}  // namespace sharpi
