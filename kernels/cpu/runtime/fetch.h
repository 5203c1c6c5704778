// Prefetching for the x86 kernels of few tokens: memory is their limit, so the rows that follow are
// fetched while these are computed.
//
// Internal linkage throughout: the header is compiled with different target flags.
#pragma once
#include "read_ahead.h"

namespace {

template <class Unpack>
constexpr size_t bytes_of_256() {
  return 256 / Unpack::kBlockColumns * Unpack::kBlockBytes;
}

// Half a tile of so many bytes is brought into L1, which has 32 KB and more. A larger one would
// push out what is in use.
enum class Level { L1, L2 };
constexpr size_t kFitsL1 = 24 << 10;

// Between two uses of `sums`, or the compiler would gather all fetches in one place: a burst of
// them keeps the loads waiting, and costs a tenth.
template <Level kTo, class Register>
[[gnu::always_inline]] inline void fetch(const uint8_t& line, Register& sums) {
  if constexpr (requires { sums.low; }) return fetch<kTo>(line, sums.low);  // one of two
  else if constexpr (kTo == Level::L1) asm("prefetcht0 %1" : "+v"(sums) : "m"(line));
  else asm("prefetcht1 %1" : "+v"(sums) : "m"(line));
}

// Fetches a share while 32 columns of some rows are computed: `kBytes` of the tile after theirs
// into L2, and again the rows half a tile on. Processors drop fetches that find no room, a tenth of
// them or more. `kBehind`: so each is tried once more so many bytes later, while there is time; 0
// for never. From L1 on, weights wait for none of the lines that are on their way from memory.
template <int kBytesOfPart, Level kAgain, int kBehind>
struct Fetch {
  static constexpr int kBytes = kBytesOfPart, kLines = (kBytes + 63) / 64;

  const uint8_t *next, *again;

  // Fetches share `index` of `shares`, from `offset` on.
  template <class Register>
  [[gnu::always_inline]] void share(unsigned index, unsigned shares, Register& sums,
                                    size_t offset = 0) const {
#pragma GCC unroll 4
    for (unsigned line = index * kLines / shares; line < (index + 1) * kLines / shares; line++) {
      const size_t at = offset + 64 * line;
      fetch<Level::L2>(next[at], sums);
      if constexpr (kBehind > 0) fetch<Level::L2>((next - kBehind)[at], sums);
      fetch<kAgain>(again[at], sums);
    }
  }
  void advance() { next += kBytes, again += kBytes; }
};

// Returns the row half a tile after `row`, in the tile itself or in the next one.
inline const uint8_t* half_a_tile_on(const uint8_t* tile, const uint8_t* next, size_t row_bytes,
                                     int row) {
  const int then = row + kTileRows / 2;
  return then < kTileRows ? tile + then * row_bytes : next + (then - kTileRows) * row_bytes;
}

template <class Rows>
using FewTokens = void (*)(Rows, int parts, const void* const* tokens, float* out,
                           const uint8_t* next);

// The kernels of one token, by level, and those of two and three, which compute for longer than
// they wait: for them L1 is as good as L2, and they are half of what there is to compile.
template <class Rows>
struct FewTokensKernels {
  FewTokens<Rows> one[2], more[kDirectTokens - 1];
};

// Runs the kernel for the number of tokens.
template <class Rows>
inline void few_tokens(const Product& p, const FewTokensKernels<Rows>& kernels) {
  const bool fits = kTileRows / 2 * p.row_bytes <= kFitsL1;
  const uint8_t* next = p.next ? p.next : p.rows;  // fetched again, they cost nothing
  const FewTokens<Rows> kernel = p.num_tokens == 1 ? kernels.one[int(fits ? Level::L1 : Level::L2)]
                                                   : kernels.more[p.num_tokens - 2];
  kernel({p.rows, p.row_bytes}, p.num_columns / 32, p.tokens, p.out, next);
}

}  // namespace
