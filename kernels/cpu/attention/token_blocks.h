// Splits a step's tokens into blocks of one sequence each, of which prefill's attention takes one
// per task, and into those of one page.
#pragma once
#include <algorithm>

#include "runtime/stage.h"

namespace sharpi {

constexpr int kTokenBlock = 16;

// Tokens of one sequence: [begin, end).
struct TokenBlock {
  int begin, end;
};

// Calls `visit(begin, end)` for the tokens of each sequence, which are adjacent within a step.
template <class F>
void each_run(const Step& step, F visit) {
  for (int begin = 0, end = 0; begin < step.num_tokens; begin = end) {
    for (end = begin + 1; end < step.num_tokens && step.sequences[end] == step.sequences[begin];)
      end++;
    visit(begin, end);
  }
}

// Calls `visit(begin, end)` for the tokens of each page, which are adjacent as well.
template <class F>
void each_page_run(const Step& step, F visit) {
  each_run(step, [&](int begin, int end) {
    for (int at = begin, next; at < end; at = next) {
      next = std::min(end, at + kPage - step.slot(at) % kPage);
      visit(at, next);
    }
  });
}

inline int count_page_runs(const Step& step) {
  int count = 0;
  each_page_run(step, [&](int, int) { count++; });
  return count;
}

inline TokenBlock find_page_run(const Step& step, int index) {
  TokenBlock found{};
  each_page_run(step, [&](int begin, int end) {
    if (index-- == 0) found = {begin, end};
  });
  return found;
}

inline int count_blocks(const Step& step) {
  int count = 0;
  each_run(step,
           [&](int begin, int end) { count += (end - begin + kTokenBlock - 1) / kTokenBlock; });
  return count;
}

inline TokenBlock find_block(const Step& step, int index) {
  TokenBlock found{};
  each_run(step, [&](int begin, int end) {
    const int count = (end - begin + kTokenBlock - 1) / kTokenBlock,
              at = begin + index * kTokenBlock;
    if (index >= 0 && index < count) found = {at, std::min(at + kTokenBlock, end)};
    index -= count;
  });
  return found;
}

}  // namespace sharpi
