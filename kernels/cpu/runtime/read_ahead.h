// What kernels of every instruction set share: the order of tokens, and reading ahead.
//
// Internal linkage throughout: the header is compiled with different target flags.
#pragma once
#include "matmul/matmul.h"

namespace {
using namespace sharpi;

// More tokens than this are served better by a tile, which is unpacked once for all of them.
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

// Bytes this thread reads later: one contiguous piece, fetched in even shares while it computes.
// Memory is fast read like that, and several times slower read as the 32 streams of a tile's rows.
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

// `bytes` from `at` in `steps` shares; nothing for null.
inline ReadAhead read_ahead(const uint8_t* at, size_t bytes, int steps) {
  if (!at) return {};
  return {at, at + bytes, int((bytes / 64 + steps) / steps)};
}

// Has the addresses of the rows after these looked up, by one line of each page: a fetch that would
// have to wait for that is dropped, and memory in small pages is then read a fifth slower than it
// can be.
inline void find_pages(const uint8_t* rows, size_t bytes) {
  constexpr size_t kSmallestPage = 4096;
  for (size_t at = 0; at < bytes; at += kSmallestPage) __builtin_prefetch(rows + at, 0, 2);
}

// Fetches rows that no earlier call of this thread announced as its next, and looks for those it
// announces.
inline void begin_reading(const Product& p) {
  static thread_local const uint8_t* announced = nullptr;
  const size_t bytes = p.num_rows * p.row_bytes;
  if (p.rows != announced) read_ahead(p.rows, bytes, 1).advance();
  if (p.next) find_pages(p.next, bytes);
  announced = p.next;
}

}  // namespace
