// Copies the keys and values that the last tokens of a prompt use most to pages of their own.
#include "attention/kept_slots.h"
#include "attention/kv_copy.h"
#include "attention/token_blocks.h"
#include "ops.h"
#include "runtime/program.h"

namespace sharpi {
namespace {

AttentionParams attention_of(const KvKeepParams& p) {
  AttentionParams a{};
  a.queries = p.queries, a.cache = p.cache, a.num_heads = p.num_heads;
  a.scale = p.scale, a.soft_cap = p.soft_cap, a.precision = p.precision;
  return a;
}

// A task chooses and copies what one KV head of one sequence keeps.
class KvKeep : public Stage {
 public:
  KvKeep(const KvKeepParams& params, const Isa& isa)
      : p_(params),
        span_(attention_of(params), isa),
        group_(params.num_heads / params.cache.heads),
        copy_(params.cache, params.precision, *isa.vectors) {}

  int num_tasks(const Step& step) const override {
    int count = 0;
    each_kept(step, [&](TokenBlock) { count += p_.cache.heads; });
    return count;
  }

  void run(const Step& step, int task, int, Worker&) const override {
    TokenBlock tokens{};
    int index = task / p_.cache.heads;
    each_kept(step, [&](TokenBlock each) {
      if (index-- == 0) tokens = each;
    });
    const int head = task % p_.cache.heads, last = tokens.end - 1;
    const int kept = step.num_kept[step.sequences[last]], end = step.slot(last) + 1;
    tokens.begin = std::max(tokens.begin, tokens.end - kKeepWindow);
    const int window = tokens.end - tokens.begin;
    std::vector<int> slots = heaviest(pooled(weights(step, tokens, head)), kept - window);
    for (int slot = end - window; slot < end; slot++) slots.push_back(slot);
    for (int i = 0; i < kept; i++)
      copy_({page_of(p_.cache, step.page_at(last, slots[i]), head), slots[i] % kPage},
            {page_of(p_.cache, step.kept_page_at(last, i), head), i % kPage});
  }

 private:
  // Calls `visit` with the tokens of each sequence that is to keep a part.
  template <class F>
  static void each_kept(const Step& step, F visit) {
    if (!step.num_kept) return;
    each_run(step, [&](int begin, int end) {
      if (step.num_kept[step.sequences[begin]]) visit(TokenBlock{begin, end});
    });
  }

  // Sums the probabilities that the window's queries give each slot before it.
  std::vector<float> weights(const Step& step, TokenBlock window, int head) const {
    std::vector<float> weights(size_t(step.slot(window.begin)));
    std::vector<uint8_t> memory(span_.prepared_bytes());
    const int end = step.slot(window.end - 1) + 1, width = (end + kPage - 1) / kPage * kPage;
    std::vector<float> scores(size_t(kQueries) * width);
    const int rows = (window.end - window.begin) * group_;
    for (int row = 0; row < rows; row += kQueries) {
      Queries q;
      for (int i = row; i < std::min(rows, row + kQueries); i++)
        q.add(window.begin + i / group_, head * group_ + i % group_, nullptr);
      span_.prepare(q, memory.data());
      const int seen = step.slot(q.tokens[q.count - 1]) + 1;
      span_.scores(step, head, {&q, 1}, 0, seen, [&](const Queries&, int at, float own[][kPage]) {
        for (int i = 0; i < q.count; i++)
          memcpy(scores.data() + size_t(i) * width + at, own[i], sizeof own[i]);
      });
      for (int i = 0; i < q.count; i++)
        add_probabilities(scores.data() + size_t(i) * width, step.slot(q.tokens[i]) + 1,
                          p_.soft_cap, weights);
    }
    return weights;
  }

  const KvKeepParams p_;
  const SpanAttention span_;
  const int group_;
  const PositionCopy copy_;
};

}  // namespace

void add_kv_keep(Program& program, const KvKeepParams& p) { program.add<KvKeep>(p, program.isa); }

}  // namespace sharpi
