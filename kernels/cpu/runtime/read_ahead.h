// Shared by the kernels of every instruction set: the order of tokens, and prefetching.
//
// Internal linkage throughout: the header is compiled with different target flags.
#pragma once
#include "matmul/matmul.h"

namespace {
using namespace sharpi;

// More tokens than this are multiplied faster with a tile, which is unpacked once for all of them.
constexpr int kDirectTokens = 3;
inline bool meets_directly(const Product& p) {
  return p.num_tokens <= kDirectTokens && p.num_rows == kTileRows;
}

inline int count_calls(int num_tokens, int at_once) { return (num_tokens + at_once - 1) / at_once; }

// Calls body(from, count) for all tokens, in even shares: 6 tokens are 3 + 3, not 4 + 2.
template <class Body>
inline void over_tokens(int num_tokens, int at_once, Body body) {
  const int calls = count_calls(num_tokens, at_once);
  for (int call = 0, from = 0; call < calls; call++) {
    const int to = int(int64_t(num_tokens) * (call + 1) / calls);
    body(from, to - from);
    from = to;
  }
}

// The bytes that this thread reads later: one contiguous piece, prefetched in even shares while it
// computes. Memory is fast when it is read like that, and several times slower when read as the 32
// streams of a tile's rows.
struct ReadAhead {
  const uint8_t *at = nullptr, *end = nullptr;
  int lines = 0;  // cache lines of a share

  void advance() {
    const uint8_t* line = at;
    at += 64 * lines;
    if (at >= end) lines = 0;
    for (; line < at; line += 64) __builtin_prefetch(line, 0, 2);
  }
};

// Plans to prefetch `bytes` from `at` in `steps` shares; nothing for null.
inline ReadAhead read_ahead(const uint8_t* at, size_t bytes, int steps) {
  if (!at) return {};
  return {at, at + bytes, int((bytes / 64 + steps) / steps)};
}

// Prefetches one line of each page of the rows that follow, so that their addresses are in the TLB:
// a prefetch that has to wait for a page walk is dropped, and memory in small pages is then read a
// fifth slower than it could be.
inline void find_pages(const uint8_t* rows, size_t bytes) {
  constexpr size_t kSmallestPage = 4096;
  for (size_t at = 0; at < bytes; at += kSmallestPage) __builtin_prefetch(rows + at, 0, 2);
}

// Prefetches rows that no earlier call of this thread announced as its next, and the pages of those
// that it announces.
inline void begin_reading(const Product& p) {
  static thread_local const uint8_t* announced = nullptr;
  const size_t bytes = p.num_rows * p.row_bytes;
  if (p.rows != announced) read_ahead(p.rows, bytes, 1).advance();
  if (p.next) find_pages(p.next, bytes);
  announced = p.next;
}

}  // namespace
