// What both kinds of product share: the order of tokens, and reading ahead.
#pragma once
#include "../matmul.h"
#include "registers.h"

namespace sharpi::avx512 {

inline int count_calls(int num_tokens, int at_once) { return (num_tokens + at_once - 1) / at_once; }

// Calls body(from, count) for all tokens, in even shares: 8 tokens are 4 + 4, not 6 + 2.
template <class Body>
void over_tokens(int num_tokens, int at_once, Body body) {
  const int calls = count_calls(num_tokens, at_once);
  for (int call = 0, from = 0; call < calls; call++) {
    const int to = int(int64_t(num_tokens) * (call + 1) / calls);
    body(from, to - from);
    from = to;
  }
}

// Bytes this thread reads later: one contiguous piece, fetched into L2 in even shares while it
// computes. Memory is fast read like that, and several times slower read as the 32 streams of a
// tile's rows.
struct Prefetch {
  const uint8_t *at = nullptr, *end = nullptr;
  int lines = 0;  // cache lines of a share

  void advance() {
    const char* line = (const char*)at;
    at += 64 * lines;
    if (at >= end) lines = 0;
    for (; line < (const char*)at; line += 64) _mm_prefetch(line, _MM_HINT_T1);
  }
};

// `bytes` from `at` in `steps` shares; nothing for null.
inline Prefetch prefetch(const uint8_t* at, size_t bytes, int steps) {
  if (!at) return {};
  return {at, at + bytes, int((bytes / 64 + steps) / steps)};
}

}  // namespace sharpi::avx512
