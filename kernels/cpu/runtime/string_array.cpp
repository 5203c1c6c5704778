// Reads the string arrays of a GGUF head: where each string begins, and which one has a given text.
// A string is a length of 8 bytes and the bytes of the text, directly followed by the next string.
#include <cstdint>
#include <cstring>

#define SHARPI_API extern "C" __attribute__((visibility("default")))

namespace {

constexpr uint64_t kLengthBytes = 8;

uint64_t read_word(const uint8_t* at, uint64_t bytes = 8) {
  uint64_t word = 0;
  std::memcpy(&word, at, bytes);
  return word;
}

// Multiplies to 128 bits and folds the halves together, so that every bit changes the result.
uint64_t mix(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// The seed differs in every process: no file can be made whose texts all fall into one slot.
uint64_t hash_text(const uint8_t* text, uint64_t bytes, uint64_t seed) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15u;
  uint64_t hash = mix(seed ^ bytes, kOdd);
  for (; bytes >= 8; text += 8, bytes -= 8) hash = mix(hash ^ read_word(text), seed | 1);
  return mix(hash ^ read_word(text, bytes), kOdd);
}

// The strings of an array and a table over them. A slot holds the number of a string plus one, or
// zero; a text is in the first slot from its hash on that has it.
struct Table {
  const uint8_t* head;
  const uint64_t* starts;
  uint32_t* slots;
  uint64_t mask;  // the number of slots, a power of two above that of the strings, minus one
  uint64_t seed;

  const uint8_t* text(uint64_t number) const { return head + starts[number] + kLengthBytes; }
  uint64_t bytes(uint64_t number) const {
    return starts[number + 1] - starts[number] - kLengthBytes;
  }

  // Returns the slot that has the text, or the empty one where it belongs.
  uint32_t& find(const uint8_t* wanted, uint64_t wanted_bytes) const {
    for (uint64_t slot = hash_text(wanted, wanted_bytes, seed);; ++slot) {
      uint32_t& entry = slots[slot & mask];
      if (entry == 0) return entry;
      if (bytes(entry - 1) != wanted_bytes) continue;
      if (std::memcmp(text(entry - 1), wanted, wanted_bytes) == 0) return entry;
    }
  }
};

}  // namespace

// Finds where the `count` strings from byte `at` of a head of `size` bytes begin. Writes `count` +
// 1 starts, of which the last is the end. Returns the number of strings that end within the head.
SHARPI_API uint64_t sharpi_string_starts(const uint8_t* head, uint64_t size, uint64_t at,
                                         uint64_t count, uint64_t* starts) {
  for (uint64_t number = 0; number < count; ++number) {
    starts[number] = at;
    if (size - at < kLengthBytes) return number;
    const uint64_t length = read_word(head + at);
    at += kLengthBytes;
    if (size - at < length) return number;
    at += length;
  }
  starts[count] = at;
  return count;
}

// Fills the slots, which are zero, with the strings of an array; of equal ones the first counts.
SHARPI_API void sharpi_string_table_fill(const uint8_t* head, const uint64_t* starts,
                                         uint64_t count, uint32_t* slots, uint64_t num_slots,
                                         uint64_t seed) {
  const Table table{head, starts, slots, num_slots - 1, seed};
  for (uint64_t number = 0; number < count; ++number) {
    uint32_t& slot = table.find(table.text(number), table.bytes(number));
    if (slot == 0) slot = static_cast<uint32_t>(number + 1);
  }
}

// Finds the string that equals a text; returns its number, or -1 where none does.
SHARPI_API int64_t sharpi_string_table_find(const uint8_t* head, const uint64_t* starts,
                                            uint32_t* slots, uint64_t num_slots, uint64_t seed,
                                            const uint8_t* text, uint64_t bytes) {
  const Table table{head, starts, slots, num_slots - 1, seed};
  return static_cast<int64_t>(table.find(text, bytes)) - 1;
}
