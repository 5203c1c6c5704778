// Attention over the positions that an indexer chose. Their keys and values are copied to pages of
// a thread's own, in their order, unless the blocks are whole pages.
#include <algorithm>
#include <vector>

#include "attention/attend_span.h"
#include "attention/kv_copy.h"
#include "ops.h"
#include "runtime/program.h"

namespace sharpi {
namespace {

size_t spans_of(const Chosen& c) { return (size_t(c.count) * c.block + kSpan - 1) / kSpan; }

class ChosenAttention : public Stage {
 public:
  ChosenAttention(const AttentionParams& params, const Program& program, uint8_t* const* partials)
      : p_(params),
        span_(params, program.isa),
        copy_(params.cache, params.precision, *program.isa.vectors),
        partials_(partials),
        group_(params.num_heads / params.cache.heads),
        parts_((group_ + kQueries - 1) / kQueries),
        spans_(int(spans_of(params.chosen))) {}

  // Few tokens: one task per KV head, token, span and group of queries. Many: one per KV head and
  // token.
  int num_tasks(const Step& step) const override {
    if (!any(step)) return 0;
    return step.num_tokens * p_.cache.heads * (splits(step) ? spans_ * parts_ : 1);
  }
  void run(const Step& step, int task, int, Worker& worker) const override {
    if (splits(step)) return split(step, task, worker.run);
    const int token = task / p_.cache.heads, head = task % p_.cache.heads;
    if (!p_.sees_all(step.slot(token))) whole(step, token, head);
  }

  bool splits(const Step& step) const { return step.num_tokens <= kSplitDecodes; }
  bool any(const Step& step) const {
    for (int t = 0; t < step.num_tokens; t++)
      if (!p_.sees_all(step.slot(t))) return true;
    return false;
  }

  // Merges the spans of a token and KV head, in order.
  void finish(const Step& step, int token, int kv_head) const {
    if (p_.sees_all(step.slot(token))) return;
    const int spans = (positions(step, token, kv_head) + kSpan - 1) / kSpan;
    for (int head = kv_head * group_; head < (kv_head + 1) * group_; head++) {
      for (int s = 1; s < spans; s++) span_.merge(partial(token, head, 0), partial(token, head, s));
      span_.write(token, head, partial(token, head, 0));
    }
  }

 private:
  const int32_t* blocks_of(int token, int head) const {
    return p_.chosen.of(token, head * p_.chosen.choices / p_.cache.heads);
  }
  // Counts the chosen positions: all of every block, but of the token's own those up to its own.
  int positions(const Step& step, int token, int head) const {
    const Chosen& c = p_.chosen;
    const int end = (blocks_of(token, head)[c.count - 1] + 1) * c.block;
    return c.count * c.block - std::max(0, end - step.slot(token) - 1);
  }
  bool copies() const { return p_.chosen.block % kPage != 0; }

  float* partial(int token, int head, int span) const {
    const size_t index = (size_t(token) * p_.num_heads + head) * spans_ + span;
    return reinterpret_cast<float*>(*partials_) + index * partial_floats(p_);
  }

  // The chosen positions of a span that a thread has copied.
  struct Copied {
    const ChosenAttention* stage;
    uint64_t run;
    int token, head, span;
    bool operator==(const Copied&) const = default;
  };

  void split(const Step& step, int task, uint64_t run) const {
    const int part = task % parts_, span = task / parts_ % spans_;
    const int head = task / parts_ / spans_ % p_.cache.heads;
    const int token = task / parts_ / spans_ / p_.cache.heads;
    if (p_.sees_all(step.slot(token))) return;
    thread_local Copied last{};
    const Copied own{this, run, token, head, span};
    thread_local std::vector<Queries> groups;
    groups.clear();
    gather(token, head, part, groups);
    for (Queries& q : groups)
      for (int i = 0; i < q.count; i++) q.partials[i] = partial(token, q.heads[i], span);
    prepare(groups);
    attend(step, token, head, groups, span, own == last);
    last = own;
  }

  void whole(const Step& step, int token, int head) const {
    thread_local std::vector<Queries> groups;
    thread_local std::vector<float> memory;
    groups.clear();
    for (int part = 0; part < parts_; part++) gather(token, head, part, groups);
    const size_t floats = partial_floats(p_);
    memory.resize(2 * group_ * floats + 16);
    float* first = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64 / 4;
    prepare(groups);
    const int spans = (positions(step, token, head) + kSpan - 1) / kSpan;
    for (int span = 0; span < spans; span++) {
      float* at = first + (span ? group_ * floats : 0);
      for (Queries& q : groups)
        for (int i = 0; i < q.count; i++, at += floats) q.partials[i] = at;
      attend(step, token, head, groups, span, false);
      for (int h = 0; span && h < group_; h++)
        span_.merge(first + h * floats, first + (group_ + h) * floats);
    }
    for (int h = 0; h < group_; h++) span_.write(token, head * group_ + h, first + h * floats);
  }

  // Adds the queries of one part of a KV head's group.
  void gather(int token, int head, int part, std::vector<Queries>& groups) const {
    Queries& q = groups.emplace_back();
    for (int h = part * kQueries; h < std::min(group_, (part + 1) * kQueries); h++)
      q.add(token, head * group_ + h, nullptr);
  }
  void prepare(std::vector<Queries>& groups) const {
    thread_local std::vector<uint8_t> memory;
    const size_t bytes = span_.prepared_bytes();
    memory.resize(groups.size() * bytes);
    for (size_t i = 0; i < groups.size(); i++) span_.prepare(groups[i], memory.data() + i * bytes);
  }

  void attend(const Step& step, int token, int head, const std::vector<Queries>& groups, int span,
              bool is_copied) const {
    thread_local std::vector<uint8_t> memory;
    const size_t bytes = kv_head_bytes(p_.cache);
    if (copies()) memory.resize(kSpan / kPage * bytes + 64);
    uint8_t* aligned = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
    const int end = std::min((span + 1) * kSpan, positions(step, token, head));
    span_.clear(groups);
    for (int at = span * kSpan; at < end; at += kPage) {
      const int count = std::min(kPage, end - at);
      PageView page = copies()
                          ? own_page(aligned + at % kSpan / kPage * bytes)
                          : page_of(p_.cache, step.page_at(token, position(token, head, at)), head);
      if (copies() && !is_copied) copy(step, token, head, at, count, page);
      span_.attend_first(groups, page, count);
    }
  }

  // Returns the position of the chosen one with this index.
  int position(int token, int head, int index) const {
    const int block = p_.chosen.block;
    return blocks_of(token, head)[index / block] * block + index % block;
  }
  PageView own_page(uint8_t* at) const {
    return {at, p_.cache.values_in_keys ? nullptr : at + kv_key_bytes(p_.cache)};
  }
  void copy(const Step& step, int token, int head, int from, int count, const PageView& to) const {
    if (p_.cache.in_rows) return copy_rows(step, token, head, from, count, to);
    for (int i = 0; i < count; i++) {
      const int at = position(token, head, from + i);
      copy_({page_of(p_.cache, step.page_at(token, at), head), at % kPage}, {to, i});
    }
  }

  void copy_rows(const Step& step, int token, int head, int from, int count,
                 const PageView& to) const {
    const size_t bytes = kv_key_bytes(p_.cache) / kPage;
    uint8_t* rows = page_scratch(kPage * bytes);
    for (int i = 0; i < count; i++) {
      const int at = position(token, head, from + i);
      const PageView page = page_of(p_.cache, step.page_at(token, at), head);
      memcpy(rows + i * bytes, page.keys + at % kPage * bytes, bytes);
    }
    span_.turn_rows(rows, count, to.keys);
  }

  const AttentionParams p_;
  const SpanAttention span_;
  const PositionCopy copy_;
  uint8_t* const* partials_;
  const int group_, parts_, spans_;
};

class MergeChosen : public Stage {
 public:
  MergeChosen(const ChosenAttention& attention, int heads) : attention_(attention), heads_(heads) {}
  int num_tasks(const Step& step) const override {
    return attention_.splits(step) && attention_.any(step) ? step.num_tokens * heads_ : 0;
  }
  void run(const Step& step, int task, int, Worker&) const override {
    attention_.finish(step, task / heads_, task % heads_);
  }

 private:
  const ChosenAttention attention_;
  const int heads_;
};

}  // namespace

void add_attention_over_chosen(Program& program, const AttentionParams& p) {
  const size_t tokens = std::min(program.max_tokens, kSplitDecodes);
  uint8_t* const* partials =
      program.request(Scratch::Partials, tokens * p.num_heads * spans_of(p.chosen) *
                                             partial_floats(p) * sizeof(float));
  const ChosenAttention attention(p, program, partials);
  program.add<ChosenAttention>(attention);
  program.add<MergeChosen>(attention, p.cache.heads);
}

}  // namespace sharpi
