// What x86 kernels of few tokens share: memory is their limit, so what is read next is fetched while this is computed.
//
// Internal linkage throughout: the header is compiled with different target flags.
#pragma once
#include "read_ahead.h"

namespace {

template <class Unpack>
constexpr size_t bytes_of_256() {
  return 256 / Unpack::kBlockColumns * Unpack::kBlockBytes;
}

// What some rows bring into L2 while 32 of their columns are computed: `kBytes` of the tile after theirs, and again as much
// of the rows that come next. Processors drop fetches that find no room; without a second one a tenth of them is missed.
template <int kBytesOfPart>
struct Fetch {
  static constexpr int kBytes = kBytesOfPart, kLines = (kBytes + 63) / 64;

  const uint8_t *next, *again;

  // One of `shares` of what `offset` begins. Between two uses of `sums`, or the compiler would gather all fetches in one
  // place: a burst of them keeps the loads waiting, and costs a tenth.
  template <class Register>
  [[gnu::always_inline]] void share(unsigned index, unsigned shares, Register& sums, size_t offset = 0) const {
#pragma GCC unroll 4
    for (unsigned line = index * kLines / shares; line < (index + 1) * kLines / shares; line++) {
      const uint8_t &a = next[offset + 64 * line], &b = again[offset + 64 * line];
      if constexpr (sizeof sums == 64) asm("prefetcht1 %1; prefetcht1 %2" : "+v"(sums) : "m"(a), "m"(b));
      else asm("prefetcht1 %1; prefetcht1 %2" : "+x"(sums) : "m"(a), "m"(b));
    }
  }
  void advance() { next += kBytes, again += kBytes; }
};

// Runs the kernel for so many tokens; `kernels[n - 1]` is that of n.
template <class Rows>
inline void few_tokens(const Product& p, void (*const kernels[])(Rows, int, const void* const*, float*, const uint8_t*)) {
  const uint8_t* next = p.next ? p.next : p.rows;  // fetched again, they cost nothing
  kernels[p.num_tokens - 1]({p.rows, p.row_bytes}, p.num_columns / 32, p.tokens, p.out, next);
}

}  // namespace
