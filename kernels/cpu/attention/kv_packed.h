// The codes of a group (kv_pages.h), packed: where the bits of a code are, and how a group is
// unpacked to bytes. Internal linkage: compiled with different target flags.
//
// - 8 bits: the vectors, one after the other.
// - 4 bits: four vectors; vector i is the low half of the bytes, vector i + 4 the high half.
// - 5 bits: the low four like those; then 64 bytes, whose bit i is vector i's fifth.
// - 3 bits: the low two in two vectors, of vectors i, i + 2, i + 4 and i + 6; then 64 bytes, whose
//   bit i is vector i's third.
#pragma once
#include "kv_types.h"
#include "vector/wide_floats.h"

namespace {

constexpr int kVectorCodes = 64, kGroupVectors = 8, kGroupCodes = kVectorCodes * kGroupVectors;

constexpr size_t group_bytes(int bits) { return size_t(kGroupCodes) * bits / 8; }

inline void put_bits(uint8_t& byte, int shift, unsigned mask, unsigned bits) {
  byte = uint8_t((byte & ~(mask << shift)) | bits << shift);
}

// Writes code `at` of a group's vector.
template <int kBits>
inline void put_code(uint8_t* group, int vector, int at, unsigned code) {
  static_assert(kBits == 8 || kBits == 5 || kBits == 4 || kBits == 3);
  if constexpr (kBits == 8) {
    group[vector * kVectorCodes + at] = uint8_t(code);
  } else if constexpr (kBits == 3) {
    put_bits(group[vector % 2 * kVectorCodes + at], vector / 2 * 2, 3, code & 3);
    put_bits(group[2 * kVectorCodes + at], vector, 1, code >> 2);
  } else {
    put_bits(group[vector % 4 * kVectorCodes + at], vector / 4 * 4, 15, code & 15);
    if (kBits == 5) put_bits(group[4 * kVectorCodes + at], vector, 1, code >> 4);
  }
}

// Returns code `at` of a group's vector.
template <int kBits>
inline unsigned code_at(const uint8_t* group, int vector, int at) {
  if constexpr (kBits == 8) {
    return group[vector * kVectorCodes + at];
  } else if constexpr (kBits == 3) {
    return (group[vector % 2 * kVectorCodes + at] >> vector / 2 * 2 & 3) |
           (group[2 * kVectorCodes + at] >> vector & 1) << 2;
  } else {
    const unsigned low = group[vector % 4 * kVectorCodes + at] >> vector / 4 * 4 & 15;
    return kBits == 5 ? low | (group[4 * kVectorCodes + at] >> vector & 1) << 4 : low;
  }
}

// Unpacks one vector of a group to codes.
template <int kBits, int kVector>
[[gnu::always_inline]] inline void unpack_vector(const uint8_t* group, uint8_t* codes) {
  typedef uint16_t Pairs __attribute__((vector_size(kOwnLanes * sizeof(float))));
  constexpr bool kIsThree = kBits == 3;
  constexpr int kShared = kIsThree ? 2 : 4, kShift = kVector / kShared * (kIsThree ? 2 : 4);
  constexpr uint16_t kMask = (kIsThree ? 3 : 15) * 0x101;
  constexpr int kTop = kIsThree ? 2 : 4;
  const auto load_pairs = [](const uint8_t* p) {
    Pairs pairs;
    memcpy(&pairs, p, sizeof pairs);
    return pairs;
  };
  for (size_t j = 0; j < kVectorCodes; j += sizeof(Pairs)) {
    const uint8_t* low = group + kVector % kShared * kVectorCodes + j;
    Pairs code = load_pairs(low) >> kShift & kMask;
    if (kBits != 4)
      code |= (load_pairs(group + kShared * kVectorCodes + j) >> kVector & 0x101) << kTop;
    memcpy(codes + j, &code, sizeof code);
  }
}

// Unpacks groups to the levels of their codes plus the type's zero, in whole vectors.
template <class Type>
inline void unpack_groups(const uint8_t* packed, int count, uint8_t* numbers) {
  for (int g = 0; g < count; g++, packed += group_bytes(Type::kBits), numbers += kGroupCodes) {
    [&]<int... kVector>(std::integer_sequence<int, kVector...>) {
      (unpack_vector<Type::kBits, kVector>(packed, numbers + kVector * kVectorCodes), ...);
    }(std::make_integer_sequence<int, kGroupVectors>{});
    Type::to_numbers(numbers);
  }
}

}  // namespace
