// Products of bytes and of words that are summed in lanes of 32 bits: of AVX-512 VNNI, AVX-VNNI or
// AVX2. All compute the same integers. Internal linkage: compiled with different target flags.
#pragma once
#include <immintrin.h>

#include "kv_types.h"
#include "vector/wide_floats.h"

namespace {

#if defined(__AVX512F__)
typedef __m512i Wide;
inline Wide load_wide(const void* p) { return _mm512_loadu_si512(p); }
inline Wide all_words(uint32_t x) { return _mm512_set1_epi32(int(x)); }
inline Wide low_bytes(Wide x) { return _mm512_and_si512(x, _mm512_set1_epi16(255)); }
inline Wide high_bytes(Wide x) { return _mm512_srli_epi16(x, 8); }
inline Wide low_nibbles(Wide x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
// Returns the words a * b / 2^15, rounded.
inline Wide scale_words(Wide a, Wide b) { return _mm512_mulhrs_epi16(a, b); }
// Interleaves the low words of integers, or the low bytes of words.
inline Wide words_of(Wide low, Wide high) {
  return _mm512_mask_blend_epi16(0xaaaaaaaau, low, _mm512_slli_epi32(high, 16));
}
inline Wide bytes_of(Wide low, Wide high) {
  return _mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaaull, low, _mm512_slli_epi16(high, 8));
}
#else
typedef __m256i Wide;
inline Wide load_wide(const void* p) { return _mm256_loadu_si256((const __m256i*)p); }
inline Wide all_words(uint32_t x) { return _mm256_set1_epi32(int(x)); }
inline Wide low_bytes(Wide x) { return _mm256_and_si256(x, _mm256_set1_epi16(255)); }
inline Wide high_bytes(Wide x) { return _mm256_srli_epi16(x, 8); }
inline Wide low_nibbles(Wide x) { return _mm256_and_si256(x, _mm256_set1_epi8(15)); }
inline Wide scale_words(Wide a, Wide b) { return _mm256_mulhrs_epi16(a, b); }
inline Wide words_of(Wide low, Wide high) {
  return _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xaa);
}
inline Wide bytes_of(Wide low, Wide high) {
  return _mm256_blendv_epi8(low, _mm256_slli_epi16(high, 8), _mm256_set1_epi16(short(0xff00)));
}
#endif

// Returns fold(lane 0, fold(lane 1, ...)) of all lanes, in any order.
template <class Fold>
inline int fold_lanes(Wide x, Fold fold) {
  const auto fold256 = [&](__m256i y) {
    return fold(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
  };
#if defined(__AVX512F__)
  __m128i all = fold(fold256(_mm512_castsi512_si256(x)), fold256(_mm512_extracti64x4_epi64(x, 1)));
#else
  __m128i all = fold256(x);
#endif
  all = fold(all, _mm_shuffle_epi32(all, 0x4e));
  return _mm_cvtsi128_si32(fold(all, _mm_shuffle_epi32(all, 0xb1)));
}
inline int largest_lane(Wide x) {
  return fold_lanes(x, [](__m128i a, __m128i b) { return _mm_max_epi32(a, b); });
}
inline Own to_floats(Wide x) { return __builtin_convertvector((OwnInts)x, Own); }

// Adds the products of two signed words in each lane with two others.
[[gnu::always_inline]] inline Wide add_words(Wide sum, Wide words, Wide pair) {
#if defined(__AVX512F__)
  asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(words), "v"(pair));  // prevents copies of the sum
  return sum;
#elif defined(__AVXVNNI__)
  return _mm256_dpwssd_avx_epi32(sum, words, pair);
#else
  return _mm256_add_epi32(sum, _mm256_madd_epi16(words, pair));
#endif
}

// Facts about the numbers 0 to 255 that signed bytes are multiplied by. Small: none is above 31.
// Positive: the signed bytes have no sign.
enum class Bytes { Any, Small, Positive };

#if defined(__AVX512F__) || defined(__AVXVNNI__)
// Products are those of the stored numbers, which contain `zero`.
template <Bytes>
constexpr bool kHasZero = true;
template <Bytes>
constexpr bool kSumsWords = false;

[[gnu::always_inline]] inline Wide add_bytes(Wide sum, Wide numbers, Wide quad) {
#if defined(__AVX512F__)
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(numbers), "v"(quad));
  return sum;
#else
  return _mm256_dpbusd_avx_epi32(sum, numbers, quad);
#endif
}

// Vectors of four numbers in each lane.
template <Bytes>
struct Numbers {
  Wide numbers;
  Numbers(Wide x, Wide) : numbers(x) {}
  [[gnu::always_inline]] Wide add_to(Wide sum, Wide quad) const {
    return add_bytes(sum, numbers, quad);
  }
};
inline Wide pairs_to_words(Wide pairs) { return pairs; }
inline Wide add_signed(Wide sum, Wide bytes) {
  return add_bytes(sum, all_words(0x01010101u), bytes);
}
inline Wide plus(Wide a, Wide b) { return (Wide)((OwnInts)a + (OwnInts)b); }
#else
template <Bytes kBytes>
constexpr bool kHasZero = kBytes == Bytes::Small;
// Sums of kTogether rows have 16 bits.
template <Bytes kBytes>
constexpr bool kSumsWords = kBytes == Bytes::Small;

inline Wide plus(Wide a, Wide b) { return _mm256_add_epi32(a, b); }
inline Wide pairs_to_words(Wide pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }

// Two products of signs and magnitudes fit in 16 bits.
template <Bytes>
struct Numbers {
  Wide levels, magnitudes;
  Numbers(Wide x, Wide zero)
      : levels(_mm256_sub_epi8(x, zero)), magnitudes(_mm256_abs_epi8(levels)) {}
  [[gnu::always_inline]] Wide add_to(Wide sum, Wide quad) const {
    Wide x;  // compilers keep few of them within one statement
    asm("vpsignb %3, %2, %1\n\tvpmaddubsw %1, %4, %1\n\tvpmaddwd %5, %1, %1\n\tvpaddd %1, %0, %0"
        : "+x"(sum), "=&x"(x)
        : "x"(quad), "x"(levels), "x"(magnitudes), "x"(_mm256_set1_epi16(1)));
    return sum;
  }
};
// The signed bytes are the magnitudes.
template <>
struct Numbers<Bytes::Positive> {
  Wide levels;
  Numbers(Wide x, Wide zero) : levels(_mm256_sub_epi8(x, zero)) {}
  [[gnu::always_inline]] Wide add_to(Wide sum, Wide quad) const {
    Wide x;
    asm("vpmaddubsw %3, %2, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"
        : "+x"(sum), "=&x"(x)
        : "x"(quad), "x"(levels), "x"(_mm256_set1_epi16(1)));
    return sum;
  }
};
// Four times two products of at most 31 * 127 fit in 16 bits.
template <>
struct Numbers<Bytes::Small> {
  Wide numbers;
  Numbers(Wide x, Wide) : numbers(x) {}
  [[gnu::always_inline]] Wide add_to(Wide pairs, Wide quad) const {
    Wide x;
    asm("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0"
        : "+x"(pairs), "=&x"(x)
        : "x"(numbers), "x"(quad));
    return pairs;
  }
};
inline Wide add_signed(Wide sum, Wide bytes) {
  return plus(sum, pairs_to_words(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes)));
}
#endif

constexpr int kParts = 2;     // the most vectors that share a quad of each query
constexpr int kTogether = 4;  // rows whose products are summed in 16 bits, if they fit

// Memory that is prefetched while a page is computed: a little with each vector, because many
// prefetches at once wait for each other. A step is about two lines at most.
struct Ahead {
  const uint8_t* at;
  size_t step;  // in bytes

  // Prefetches nothing new: `idle` is memory in use.
  explicit Ahead(const uint8_t* idle) : at(idle), step(0) {}
  Ahead(const uint8_t* from, size_t bytes, int num_steps) : at(from), step(bytes / num_steps + 1) {}
  [[gnu::always_inline]] void fetch() {
    __builtin_prefetch(at, 0, 3);
    __builtin_prefetch(at + step / 2, 0, 3);
    at += step;
  }
};

// Bytes ahead at which numbers are prefetched again: processors drop prefetches that find no room.
constexpr int kAgain = 768;

// Rows of numbers, and the quads of queries to multiply them with.
struct ByteRows {
  const uint8_t* numbers;
  size_t part_apart, row_apart;  // in bytes
  const uint32_t* quads;         // of the first query and row
};

// How rows lie: as bytes, or two numbers to a byte: of each kNibbles rows those of the second half
// are the high halves of the first's.
constexpr int kBytesOnly = 0;

// Loads a row's vector. `rows`: the first of kNibbles rows.
template <int kNibbles>
[[gnu::always_inline]] inline Wide load_row(const uint8_t* rows, int row, size_t row_apart) {
  if constexpr (kNibbles == kBytesOnly) {
    return load_wide(rows + row * row_apart);
  } else {
    const Wide pairs = load_wide(rows + row % (kNibbles / 2) * row_apart);
    return low_nibbles(row < kNibbles / 2 ? pairs : (Wide)((OwnInts)pairs >> 4));
  }
}

// Adds the products of kTogether rows with N queries, from row kFrom of kNibbles on.
template <int N, int P, Bytes kBytes, int kQueryApart, int kRowApart, int kNibbles, int kFrom>
[[gnu::always_inline]] inline void add_together(const ByteRows& rows, Wide zero, Ahead& ahead,
                                                Wide sums[N][P]) {
#pragma GCC unroll 4
  for (int i = 0; i < kTogether; i++) {
    const uint8_t* second_part = rows.numbers + (P - 1) * rows.part_apart;
    const Numbers<kBytes> first(load_row<kNibbles>(rows.numbers, kFrom + i, rows.row_apart), zero),
        second(load_row<kNibbles>(second_part, kFrom + i, rows.row_apart), zero);
    ahead.fetch();
    if (kNibbles == kBytesOnly || kFrom + i < kNibbles / 2) {
      const size_t again = (kFrom + i) * rows.row_apart + kAgain;
      __builtin_prefetch(rows.numbers + again);
      if (P > 1) __builtin_prefetch(second_part + again);
    }
#pragma GCC unroll 8
    for (int n = 0; n < N; n++) {
      const Wide quad = all_words(rows.quads[n * kQueryApart + (kFrom + i) * kRowApart]);
      sums[n][0] = first.add_to(sums[n][0], quad);
      if constexpr (P > 1) sums[n][1] = second.add_to(sums[n][1], quad);
    }
  }
}

// Does so, with sums of 16 bits where those are enough.
template <int N, int P, Bytes kBytes, int kQueryApart, int kRowApart, int kNibbles, int kFrom>
[[gnu::always_inline]] inline void add_four(const ByteRows& rows, Wide zero, Ahead& ahead,
                                            Wide sums[N][P]) {
  if constexpr (kSumsWords<kBytes>) {
    Wide pairs[N][P] = {};
    add_together<N, P, kBytes, kQueryApart, kRowApart, kNibbles, kFrom>(rows, zero, ahead, pairs);
    for (int n = 0; n < N; n++)
      for (int p = 0; p < P; p++) sums[n][p] = plus(sums[n][p], pairs_to_words(pairs[n][p]));
  } else {
    add_together<N, P, kBytes, kQueryApart, kRowApart, kNibbles, kFrom>(rows, zero, ahead, sums);
  }
}

// Adds the products of kRows rows to `sums`.
template <int N, int P, Bytes kBytes, int kRows, int kQueryApart, int kRowApart, int kNibbles>
[[gnu::always_inline]] inline void add_rows(ByteRows rows, Wide zero, Ahead& ahead,
                                            Wide sums[N][P]) {
  constexpr int kStep = kNibbles > kTogether ? kNibbles : kTogether;
  static_assert(kStep <= 2 * kTogether);
  for (int from = 0; from < kRows; from += kStep) {
    add_four<N, P, kBytes, kQueryApart, kRowApart, kNibbles, 0>(rows, zero, ahead, sums);
    if constexpr (kStep > kTogether)
      add_four<N, P, kBytes, kQueryApart, kRowApart, kNibbles, kTogether>(rows, zero, ahead, sums);
    rows.numbers += (kNibbles ? kNibbles / 2 : kStep) * rows.row_apart;
    rows.quads += kStep * kRowApart;
  }
}

}  // namespace
