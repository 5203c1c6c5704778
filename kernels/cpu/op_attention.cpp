// Attention over the pages of the KV cache: online softmax page by page.
//
// Positions are taken in spans of 512. Each span starts from an empty state and is merged in order, so a decode step that
// shares spans among threads and a prefill that walks them alone give the same bits.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kv_ways.h"
#include "ops.h"
#include "program.h"
#include "tiles.h"

namespace sharpi {
namespace {

constexpr int kSpanPages = 8;
constexpr int kSpan = kSpanPages * kPage;
constexpr int kSplitTokens = 4;   // up to so many tokens, spans are shared among threads
constexpr int kSplitDecodes = 16;  // and up to so many, each of a sequence of its own, ...
constexpr int kSplitSpans = 64;    // ... that together have no more partial results than so many spans each
constexpr int kTokenBlock = 16;    // otherwise a task is so many tokens of one sequence and KV head

// Partial results of a head that there is room for: one for each token and span.
size_t partials_a_head(size_t max_spans) {
  return std::max(kSplitTokens * max_spans, kSplitDecodes * std::min<size_t>(max_spans, kSplitSpans));
}

// Tokens of one sequence that a task takes: [begin, end).
struct TokenBlock {
  int begin, end;
};

// Runs `visit(begin, end)` over the tokens of each sequence, which follow each other within a step.
template <class F>
void each_run(const Step& step, F visit) {
  for (int begin = 0, end = 0; begin < step.num_tokens; begin = end) {
    for (end = begin + 1; end < step.num_tokens && step.sequences[end] == step.sequences[begin];) end++;
    visit(begin, end);
  }
}

int count_blocks(const Step& step) {
  int count = 0;
  each_run(step, [&](int begin, int end) { count += (end - begin + kTokenBlock - 1) / kTokenBlock; });
  return count;
}

TokenBlock find_block(const Step& step, int index) {
  TokenBlock found{};
  each_run(step, [&](int begin, int end) {
    const int count = (end - begin + kTokenBlock - 1) / kTokenBlock, at = begin + index * kTokenBlock;
    if (index >= 0 && index < count) found = {at, std::min(at + kTokenBlock, end)};
    index -= count;
  });
  return found;
}

// A query's result so far: state, then sums (value_stride).
size_t partial_floats(const AttentionParams& p) { return 16 + size_t(p.cache.value_stride); }

struct Partial {
  SoftmaxState* state;
  float* sums;
  explicit Partial(float* at) : state(reinterpret_cast<SoftmaxState*>(at)), sums(at + 16) {}
  void clear(int n) const {
    *state = {-INFINITY, 0};
    memset(sums, 0, sizeof(float) * n);
  }
};

class Attention : public Stage {
 public:
  Attention(const AttentionParams& params, const Program& program, uint8_t* const* partials)
      : p_(params),
        isa_(program.isa),
        partials_(partials),
        kv_(kv_ops(params.cache, params.precision, *isa_.vectors)),
        group_(params.num_heads / params.cache.heads),
        max_spans_((program.max_positions + kSpan - 1) / kSpan) {}

  // Decode: one task per KV head, token and span. Prefill: one per KV head and block of tokens, all spans.
  int num_tasks(const Step& step) const override {
    if (splits(step)) return step.num_tokens * p_.cache.heads * max_spans(step);
    return count_blocks(step) * p_.cache.heads;
  }

  // A span's first page; of tokens that are not split, several share it anyway.
  Bytes reads_first(const Step& step, int task) const override {
    if (!splits(step)) return {};
    const int spans = max_spans(step), head = task / spans % p_.cache.heads, token = task / spans / p_.cache.heads;
    const int begin = std::max(task % spans * kSpan, first_visible(step, token));
    if (begin > step.positions[token]) return {};
    return {page_of(p_.cache, step.page_at(token, begin), head).keys, kv_head_bytes(p_.cache)};
  }

  void run(const Step& step, int task, int, Worker&) const override {
    if (splits(step)) return split(step, task);
    const int head = task % p_.cache.heads;
    const TokenBlock block = find_block(step, task / p_.cache.heads);
    for (int t = block.begin; t < block.end;) t += whole(step, t, block.end, head);
  }

  // Whether spans are shared among threads; what is not split reads pages once for several tokens of a sequence.
  bool splits(const Step& step) const {
    if (step.num_tokens <= kSplitTokens) return true;
    if (step.num_tokens > kSplitDecodes) return false;
    for (int t = 1; t < step.num_tokens; t++)
      if (step.sequences[t] == step.sequences[t - 1]) return false;
    return size_t(step.num_tokens) * max_spans(step) <= partials_a_head(max_spans_);
  }

  static int max_spans(const Step& step) {
    int last = 0;
    for (int t = 0; t < step.num_tokens; t++) last = std::max(last, step.positions[t]);
    return last / kSpan + 1;
  }
  // Where the queries' result for one of `spans` lies; those of a token and head are neighbours.
  float* partial(int token, int head, int span, int spans) const {
    const size_t index = (size_t(token) * p_.num_heads + head) * spans + span;
    return reinterpret_cast<float*>(*partials_) + index * partial_floats(p_);
  }
  // out = the merge of `spans` partial results, in order
  void finish(int token, int head, int spans) const {
    const Partial total(partial(token, head, 0, spans));
    for (int s = 1; s < spans; s++) {
      const Partial part(partial(token, head, s, spans));
      isa_.vectors->merge(*total.state, total.sums, *part.state, part.sums, p_.cache.value_stride);
    }
    write(token, head, total);
  }
  const AttentionParams& params() const { return p_; }

 private:
  int first_visible(const Step& step, int token) const {
    const int position = step.positions[token];
    if (!p_.window) return 0;
    return p_.is_chunked ? position / p_.window * p_.window : std::max(0, position - p_.window + 1);
  }

  void split(const Step& step, int task) const {
    const int spans = max_spans(step), span = task % spans;
    const int head = task / spans % p_.cache.heads, token = task / spans / p_.cache.heads;
    for (int g = 0; g < group_; g += kQueries) {
      const int count = std::min(kQueries, group_ - g);
      int tokens[kQueries], heads[kQueries];
      float* partials[kQueries];
      for (int i = 0; i < count; i++) {
        tokens[i] = token, heads[i] = head * group_ + g + i;
        partials[i] = partial(token, heads[i], span, spans);
        Partial(partials[i]).clear(p_.cache.value_stride);
      }
      attend_span(step, head, tokens, heads, count, span, partials);
    }
  }

  // All spans for as many queries from token `begin` on as fit one pass; returns the tokens taken.
  int whole(const Step& step, int begin, int end, int head) const {
    const int count = std::min(end - begin, std::max(1, kQueries / group_));
    for (int g = 0; g < group_; g += kQueries) whole_group(step, begin, count, head, g, std::min(kQueries, group_ - g));
    return count;
  }

  void whole_group(const Step& step, int begin, int num_tokens, int head, int g, int heads_each) const {
    thread_local std::vector<float> memory;
    const size_t floats = partial_floats(p_);
    memory.resize(2 * kQueries * floats + 16);
    float* base = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64 / 4;
    int tokens[kQueries], heads[kQueries], count = 0;
    float *totals[kQueries], *parts[kQueries];
    for (int t = begin; t < begin + num_tokens; t++)
      for (int h = 0; h < heads_each; h++, count++) {
        tokens[count] = t, heads[count] = head * group_ + g + h;
        totals[count] = base + 2 * count * floats, parts[count] = totals[count] + floats;
        Partial(totals[count]).clear(p_.cache.value_stride);
      }
    const int spans = step.positions[tokens[count - 1]] / kSpan + 1;
    for (int span = first_visible(step, begin) / kSpan; span < spans; span++) {
      for (int i = 0; i < count; i++) Partial(parts[i]).clear(p_.cache.value_stride);
      attend_span(step, head, tokens, heads, count, span, parts);
      for (int i = 0; i < count; i++) {
        const Partial total(totals[i]), part(parts[i]);
        isa_.vectors->merge(*total.state, total.sums, *part.state, part.sums, p_.cache.value_stride);
      }
    }
    for (int i = 0; i < count; i++) write(tokens[i], heads[i], Partial(totals[i]));
  }

  // Adds the pages of one span to each query's partial result.
  void attend_span(const Step& step, int head, const int* tokens, const int* heads, int count, int span,
                   float* const* partials) const {
    thread_local std::vector<uint8_t> prepared;
    prepared.resize(size_t(kQueries) * kQueryBytes * p_.cache.key_dim);
    const float* queries[kQueries];
    SoftmaxState states[kQueries];
    float* sums[kQueries];
    int lowest = INT32_MAX, highest = 0;
    for (int i = 0; i < count; i++) {
      queries[i] = p_.queries + (size_t(tokens[i]) * p_.num_heads + heads[i]) * p_.cache.key_dim;
      states[i] = *Partial(partials[i]).state;
      sums[i] = Partial(partials[i]).sums;
      lowest = std::min(lowest, first_visible(step, tokens[i]));
      highest = std::max(highest, int(step.positions[tokens[i]]));
    }
    kv_.prepare_queries(queries, count, p_.scale, p_.cache.key_dim, prepared.data());
    const int begin = std::max(span * kSpan, lowest / kPage * kPage), end = std::min((span + 1) * kSpan, highest + 1);
    for (int at = begin; at < end; at += kPage) {
      int first[kQueries], last[kQueries];
      for (int i = 0; i < count; i++) {
        first[i] = first_visible(step, tokens[i]) - at;
        last[i] = step.positions[tokens[i]] - at;
      }
      const PageView view = page_of(p_.cache, step.page_at(tokens[0], at), head);
      const uint8_t* next =
          at + kPage < end ? page_of(p_.cache, step.page_at(tokens[0], at + kPage), head).keys : nullptr;
      kv_.attend_page({prepared.data(), first, last, count, view.keys, view.values, p_.cache.key_dim,
                       p_.cache.value_stride, p_.soft_cap, states, sums, next});
    }
    for (int i = 0; i < count; i++) *Partial(partials[i]).state = states[i];
  }

  void write(int token, int head, const Partial& total) const {
    float* out = p_.out + (size_t(token) * p_.num_heads + head) * p_.cache.value_dim;
    const float sink = p_.sinks ? std::exp(p_.sinks[head] - total.state->peak) : 0.f;
    isa_.vectors->add_scaled(nullptr, total.sums, 1.f / (total.state->total + sink), out, p_.cache.value_dim);
  }

  const AttentionParams p_;
  const Isa& isa_;
  uint8_t* const* partials_;
  const KvOps& kv_;
  const int group_, max_spans_;
};

// Decode only: merges the spans of each head.
class MergeSpans : public Stage {
 public:
  explicit MergeSpans(const Attention& attention) : attention_(attention) {}
  int num_tasks(const Step& step) const override { return attention_.splits(step) ? step.num_tokens : 0; }
  void run(const Step& step, int token, int, Worker&) const override {
    const int spans = Attention::max_spans(step);
    for (int h = 0; h < attention_.params().num_heads; h++) attention_.finish(token, h, spans);
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
}

}  // namespace sharpi
