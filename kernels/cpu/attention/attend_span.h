// Attends queries of one sequence and KV head to a span of positions, page by page.
//
// A span starts from an empty state and spans are merged in order. So a decode step that shares
// spans among threads and a prefill on one thread give the same bits.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "kv_layout.h"
#include "operations/ops.h"
#include "page_scratch.h"
#include "runtime/program.h"

namespace sharpi {

constexpr int kSpan = 8 * kPage;
constexpr int kSplitDecodes = 16;  // up to so many tokens, each of its own sequence, share spans

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
  const uint8_t* prepared;

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
    const int position = step.slot(token);
    if (!p_.window) return 0;
    return p_.is_chunked ? position / p_.window * p_.window : std::max(0, position - p_.window + 1);
  }

  // Returns the first page of a span that a token sees; null if it sees none.
  const uint8_t* first_page(const Step& step, int token, int head, int span) const {
    const int begin = std::max(span * kSpan, first_visible(step, token));
    return begin > step.slot(token) ? nullptr
                                    : page_of(p_.cache, step.page_at(token, begin), head).keys;
  }

  // Returns the bytes of a group's prepared queries.
  size_t prepared_bytes() const { return size_t(kQueries) * kQueryBytes * p_.cache.key_dim; }

  // Prepares queries for all pages, in `memory` of prepared_bytes.
  void prepare(Queries& q, uint8_t* memory) const {
    thread_local std::vector<float> rotated;
    const int dim = p_.cache.key_dim;
    if (p_.cache.key_rotation) rotated.resize(size_t(kQueries) * dim);
    const float* from[kQueries];
    for (int i = 0; i < q.count; i++) {
      from[i] = p_.queries + (size_t(q.tokens[i]) * p_.num_heads + q.heads[i]) * dim;
      if (p_.cache.key_rotation) from[i] = rotate_key(from[i], rotated.data() + size_t(i) * dim);
    }
    keys_.prepare_queries(from, q.count, p_.scale, dim, memory);
    q.prepared = memory;
  }

  // Returns true if any of the queries sees a position of the span.
  bool sees(const Step& step, const Queries& q, int span) const {
    return first_span(step, q) <= span && span <= step.slot(q.tokens[q.count - 1]) / kSpan;
  }
  int first_span(const Step& step, const Queries& q) const {
    return first_visible(step, q.tokens[0]) / kSpan;
  }

  // Computes the partial results of a span for groups of queries of one sequence, in the order of
  // their tokens. A page is read, and unpacked, once for all groups. `after`: the page to be read
  // next, or null.
  void attend(const Step& step, int head, std::span<const Queries> groups, int span,
              const uint8_t* after) const {
    clear(groups);
    const Queries &first = groups.front(), &last = groups.back();
    const int begin = first_page_at(step, first, span), end = end_of(step, last, span);
    for (int at = begin; at < end; at += kPage) {
      const Visible range = in_page(step, groups, at);
      const PageView page = in_panels(view(step, first, at, head), range);
      const uint8_t* next = at + kPage < end ? view(step, first, at + kPage, head).keys : after;
      Unpacked unpacked = unpack(page, range);
      for (const Queries& q : groups) {
        if (at < first_page_at(step, q, span) || at >= end_of(step, q, span)) continue;
        attend_page(step, q, at, page, unpacked, next);
        next = nullptr;
      }
    }
  }

  // Turns the rows of keys from `rows` on to a page's keys at `to`.
  void turn_rows(const uint8_t* rows, int count, uint8_t* to) const {
    vectors_.turn_rows(reinterpret_cast<const uint16_t*>(rows), p_.cache.key_dim, {0, count},
                       reinterpret_cast<uint16_t*>(to));
  }

  // Attends groups of queries to the first `count` positions of a page; they all see these.
  void attend_first(std::span<const Queries> groups, const PageView& page, int count) const {
    constexpr int kFirst[kQueries] = {};
    int last[kQueries];
    std::fill(last, last + kQueries, count - 1);
    Unpacked unpacked = unpack(page, {0, count});
    for (const Queries& q : groups) attend_page(q, kFirst, last, page, unpacked, nullptr);
  }

  // Sets the queries' results to those of no positions.
  void clear(std::span<const Queries> groups) const {
    for (const Queries& q : groups)
      for (int i = 0; i < q.count; i++) {
        *Partial(q.partials[i]).state = {-INFINITY, 0};
        memset(Partial(q.partials[i]).sums, 0, sizeof(float) * p_.cache.value_stride);
      }
  }

  // Calls `visit(group, at, scores)` with the scores [kQueries][kPage] of each group of queries of
  // one sequence with the positions of each page between `begin`, a page's first, and `end`.
  template <class Visit>
  void scores(const Step& step, int head, std::span<const Queries> groups, int begin, int end,
              Visit visit) const {
    for (int at = begin; at < end; at += kPage) {
      const PageView page = view(step, groups.front(), at, head);
      const Visible range{0, std::min(end - at, kPage)};
      Unpacked unpacked{};
      if (keys_.unpack) {
        uint8_t* memory = page_scratch(unpacked_key_bytes(p_.cache.key_dim));
        keys_.unpack(kv_page(page), range, memory, unpacked.keys);
      }
      for (const Queries& q : groups) {
        alignas(64) float own[kQueries][kPage] = {};
        keys_.scores(page_attention(q, page, unpacked), range, own);
        visit(q, at, own);
      }
    }
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
  struct Unpacked {
    PackedKeys keys;
    PackedValues values;
  };

  // Returns the position that begins the first page of a span that a group sees, and the position
  // after the last one that it sees.
  int first_page_at(const Step& step, const Queries& q, int span) const {
    return std::max(span * kSpan, first_visible(step, q.tokens[0]) / kPage * kPage);
  }
  int end_of(const Step& step, const Queries& q, int span) const {
    return std::min((span + 1) * kSpan, step.slot(q.tokens[q.count - 1]) + 1);
  }
  // Returns the positions of the page at `at` that any of the groups sees.
  Visible in_page(const Step& step, std::span<const Queries> groups, int at) const {
    const Queries& last = groups.back();
    return {std::max(first_visible(step, groups.front().tokens[0]) - at, 0),
            std::min(step.slot(last.tokens[last.count - 1]) - at + 1, kPage)};
  }

  // Returns a page whose keys lie as kernels read them.
  PageView in_panels(const PageView& page, Visible range) const {
    if (!p_.cache.in_rows) return page;
    uint8_t* memory = page_scratch(kv_key_bytes(p_.cache));
    vectors_.turn_rows(reinterpret_cast<const uint16_t*>(page.keys), p_.cache.key_dim, range,
                       reinterpret_cast<uint16_t*>(memory));
    return {memory, page.values};
  }

  KvPage kv_page(const PageView& page) const {
    return {page.keys, page.values, p_.cache.key_dim, p_.cache.value_stride};
  }
  Unpacked unpack(const PageView& page, Visible range) const {
    const KvPage from = kv_page(page);
    const size_t for_keys = keys_.unpack ? unpacked_key_bytes(from.key_dim) : 0;
    const size_t for_values = values_.unpack ? unpacked_value_bytes(from.value_dim) : 0;
    Unpacked unpacked{};
    if (!for_keys && !for_values) return unpacked;
    uint8_t* memory = page_scratch(for_keys + for_values);
    if (for_values) values_.unpack(from, range, memory + for_keys, unpacked.values);
    if (for_keys) keys_.unpack(from, range, memory, unpacked.keys);
    return unpacked;
  }

  void attend_page(const Step& step, const Queries& q, int at, const PageView& page,
                   const Unpacked& unpacked, const uint8_t* next) const {
    int first[kQueries], last[kQueries];
    for (int i = 0; i < q.count; i++) {
      first[i] = first_visible(step, q.tokens[i]) - at;
      last[i] = step.slot(q.tokens[i]) - at;
    }
    attend_page(q, first, last, page, unpacked, next);
  }
  void attend_page(const Queries& q, const int* first, const int* last, const PageView& page,
                   const Unpacked& unpacked, const uint8_t* next) const {
    SoftmaxState* states[kQueries];
    float* sums[kQueries];
    for (int i = 0; i < q.count; i++)
      states[i] = Partial(q.partials[i]).state, sums[i] = Partial(q.partials[i]).sums;
    PageAttention a = page_attention(q, page, unpacked);
    a.first = first, a.last = last, a.states = states, a.sums = sums, a.next = next;
    vectors_.attend_page(a, keys_, values_);
  }

  PageAttention page_attention(const Queries& q, const PageView& page,
                               const Unpacked& unpacked) const {
    const size_t key_bytes = kv_key_bytes(p_.cache);
    return {.queries = q.prepared,
            .first = nullptr,
            .last = nullptr,
            .num_queries = q.count,
            .keys = page.keys,
            .values = page.values,
            .key_dim = p_.cache.key_dim,
            .value_dim = p_.cache.value_stride,
            .soft_cap = p_.soft_cap,
            .states = nullptr,
            .sums = nullptr,
            .next = nullptr,
            .key_bytes = key_bytes,
            .value_bytes = kv_head_bytes(p_.cache) - key_bytes,
            .packed_keys = &unpacked.keys,
            .packed_values = &unpacked.values};
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
