// Attends queries of one sequence and KV head to a span of positions, page by page.
//
// A span starts from an empty state and spans are merged in order, so a decode step that shares
// spans among threads and a prefill that walks them alone give the same bits.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kv_layout.h"
#include "operations/ops.h"
#include "runtime/program.h"

namespace sharpi {

constexpr int kSpan = 8 * kPage;

// A query's partial result: its state, then sums (value_stride).
inline size_t partial_floats(const AttentionParams& p) { return 16 + size_t(p.cache.value_stride); }

struct Partial {
  SoftmaxState* state;
  float* sums;
  explicit Partial(float* at) : state(reinterpret_cast<SoftmaxState*>(at)), sums(at + 16) {}
};

// Queries that are processed together: those of adjacent tokens of a sequence, each with its
// partial result.
struct Queries {
  int count = 0;
  int tokens[kQueries], heads[kQueries];
  float* partials[kQueries];

  void add(int token, int head, float* partial) {
    tokens[count] = token, heads[count] = head, partials[count] = partial;
    count++;
  }
};

class SpanAttention {
 public:
  SpanAttention(const AttentionParams& params, const Isa& isa)
      : p_(params),
        vectors_(*isa.vectors),
        keys_(key_ops(params.cache, params.precision, vectors_)),
        values_(value_ops(params.cache, params.precision, vectors_)) {}

  int first_visible(const Step& step, int token) const {
    const int position = step.positions[token];
    if (!p_.window) return 0;
    return p_.is_chunked ? position / p_.window * p_.window : std::max(0, position - p_.window + 1);
  }

  // Returns the first page of a span that a token sees; null where it sees none.
  const uint8_t* first_page(const Step& step, int token, int head, int span) const {
    const int begin = std::max(span * kSpan, first_visible(step, token));
    return begin > step.positions[token] ? nullptr
                                         : page_of(p_.cache, step.page_at(token, begin), head).keys;
  }

  // Computes the queries' partial results of a span. `after`: the page that is read afterwards, or
  // null.
  void attend(const Step& step, int head, const Queries& q, int span, const uint8_t* after) const {
    SoftmaxState states[kQueries];
    float* sums[kQueries];
    for (int i = 0; i < q.count; i++) {
      states[i] = {-INFINITY, 0};
      sums[i] = Partial(q.partials[i]).sums;
      memset(sums[i], 0, sizeof(float) * p_.cache.value_stride);
    }
    const int lowest = first_visible(step, q.tokens[0]),
              highest = step.positions[q.tokens[q.count - 1]];
    const int begin = std::max(span * kSpan, lowest / kPage * kPage),
              end = std::min((span + 1) * kSpan, highest + 1);
    const uint8_t* prepared = prepare(q);
    for (int at = begin; at < end; at += kPage) {
      int first[kQueries], last[kQueries];
      for (int i = 0; i < q.count; i++) {
        first[i] = first_visible(step, q.tokens[i]) - at;
        last[i] = step.positions[q.tokens[i]] - at;
      }
      const PageView page = view(step, q, at, head);
      const uint8_t* next = at + kPage < end ? view(step, q, at + kPage, head).keys : after;
      const size_t key_bytes = kv_key_bytes(p_.cache);
      vectors_.attend_page({prepared, first, last, q.count, page.keys, page.values,
                            p_.cache.key_dim, p_.cache.value_stride, p_.soft_cap, states, sums,
                            next, key_bytes, kv_head_bytes(p_.cache) - key_bytes},
                           keys_, values_);
    }
    for (int i = 0; i < q.count; i++) *Partial(q.partials[i]).state = states[i];
  }

  // Merges the result of a later span into `into`.
  void merge(float* into, float* later) const {
    const Partial total(into), part(later);
    vectors_.merge(*total.state, total.sums, *part.state, part.sums, p_.cache.value_stride);
  }

  // Writes the final result of one head to the output.
  void write(int token, int head, float* partial) const {
    const Partial total(partial);
    float* out = p_.out + (size_t(token) * p_.num_heads + head) * p_.cache.value_dim;
    const float sink = p_.sinks ? std::exp(p_.sinks[head] - total.state->peak) : 0.f;
    vectors_.add_scaled(nullptr, total.sums, 1.f / (total.state->total + sink), out,
                        p_.cache.value_dim);
    if (p_.cache.value_rotation)
      vectors_.rotate(out, out, p_.cache.value_dim, p_.cache.value_rotation);
  }

 private:
  const uint8_t* prepare(const Queries& q) const {
    thread_local std::vector<uint8_t> memory;
    thread_local std::vector<float> rotated;
    const int dim = p_.cache.key_dim;
    memory.resize(size_t(kQueries) * kQueryBytes * dim);
    if (p_.cache.key_rotation) rotated.resize(size_t(kQueries) * dim);
    const float* from[kQueries];
    for (int i = 0; i < q.count; i++) {
      from[i] = p_.queries + (size_t(q.tokens[i]) * p_.num_heads + q.heads[i]) * dim;
      if (p_.cache.key_rotation) from[i] = rotate_key(from[i], rotated.data() + size_t(i) * dim);
    }
    keys_.prepare_queries(from, q.count, p_.scale, dim, memory.data());
    return memory.data();
  }
  const float* rotate_key(const float* query, float* out) const {
    vectors_.rotate(query, out, p_.cache.key_dim, p_.cache.key_rotation);
    return out;
  }
  PageView view(const Step& step, const Queries& q, int position, int head) const {
    return page_of(p_.cache, step.page_at(q.tokens[0], position), head);
  }

  const AttentionParams p_;
  const VectorOps& vectors_;
  const KeyOps& keys_;
  const ValueOps& values_;
};

}  // namespace sharpi
