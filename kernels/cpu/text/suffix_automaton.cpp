// The automaton of every run of tokens in some texts, in memory of a fixed size.
//
// Blumer et al., "The smallest automaton recognizing the subwords of a text" (1985). A state stands
// for the runs that end at the same places. Its link is the state of the longest suffix of these
// runs that ends at more places. A text of n tokens has at most 2 n states and 3 n edges. The edges
// of a state are a list; a table over all edges finds one by its state and token.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#define SHARPI_API extern "C" __attribute__((visibility("default")))

namespace {

constexpr int32_t kRoot = 0, kNone = -1, kEndOfText = -1;
constexpr int kRefreshed = 4;  // states along the links that receive the newest place

struct State {
  int32_t link;
  int32_t length;  // of the longest run of the state
  int32_t end;     // the length of the text up to a late place of the state's runs
  int32_t edge;    // the newest one that leaves the state
};

struct Edge {
  int32_t from, token, to;
  int32_t next;  // an older one of the same state
};

// The longest known run with which a sequence ends.
struct Place {
  int32_t state, length;
};

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

template <typename T>
using Array = std::unique_ptr<T[], Free>;

// Returns zeros, whose pages the system gives when they are used.
template <typename T>
Array<T> make(size_t size) {
  Array<T> found(static_cast<T*>(std::calloc(size, sizeof(T))));
  if (!found) throw std::bad_alloc();
  return found;
}

class SuffixAutomaton {
 public:
  // `seed` differs in every process: no text can be made whose edges all fall into one slot.
  SuffixAutomaton(size_t most, uint64_t seed)
      : seed_(seed),
        most_(most),
        num_slots_(std::bit_ceil(2 * (3 * most + 1))),
        text_(make<int32_t>(most)),
        states_(make<State>(2 * most + 1)),
        edges_(make<Edge>(3 * most + 1)),
        slots_(make<int32_t>(num_slots_)) {
    last_ = add_state({kNone, 0, 0, kNone});
  }

  void clear() {
    std::fill_n(slots_.get(), num_slots_, 0);
    num_tokens_ = num_states_ = num_edges_ = 0;
    last_ = add_state({kNone, 0, 0, kNone});
  }

  bool has_room(size_t count) const { return num_tokens_ + count <= most_; }

  void append(int32_t token) {
    text_[num_tokens_++] = token;
    const int32_t size = int32_t(num_tokens_);
    const int32_t current = add_state({kNone, states_[last_].length + 1, size, kNone});
    int32_t state = last_;
    for (; state >= 0; state = states_[state].link) {
      int32_t& slot = find(state, token);
      if (slot != 0) break;
      add_edge(slot, state, token, current);
    }
    states_[current].link = state < 0 ? kRoot : split(state, token);
    last_ = current;
    refresh(states_[current].link);
  }

  // Moves a place by one token.
  void follow(Place& place, int32_t token) {
    for (;;) {
      const int32_t slot = find(place.state, token);
      if (slot != 0) {
        place = {edges_[slot - 1].to, place.length + 1};
        return;
      }
      if (place.state == kRoot) {
        place = {kRoot, 0};
        return;
      }
      place.state = states_[place.state].link;
      place.length = states_[place.state].length;
    }
  }

  // Copies what followed at a late place of the state, up to the end of that text; returns its
  // length.
  int32_t following(int32_t state, int32_t most, int32_t* tokens) const {
    const int32_t begin = states_[state].end;
    const int32_t end = int32_t(std::min<int64_t>(int64_t(num_tokens_), int64_t(begin) + most));
    int32_t count = 0;
    while (begin + count < end && text_[begin + count] != kEndOfText) {
      tokens[count] = text_[begin + count];
      count++;
    }
    return count;
  }

 private:
  int32_t add_state(const State& state) {
    states_[num_states_] = state;
    return int32_t(num_states_++);
  }

  // Returns the slot with the number of the edge plus one, or the empty one where it belongs.
  int32_t& find(int32_t state, int32_t token) {
    const uint64_t key = uint64_t(uint32_t(state)) << 32 | uint32_t(token);
    const auto product = static_cast<unsigned __int128>(key ^ seed_) * 0x9E3779B97F4A7C15u;
    const size_t mask = num_slots_ - 1;
    size_t place = size_t(uint64_t(product) ^ uint64_t(product >> 64));
    for (;; place++) {
      int32_t& slot = slots_[place & mask];
      if (slot == 0) return slot;
      const Edge& edge = edges_[slot - 1];
      if (edge.from == state && edge.token == token) return slot;
    }
  }

  void add_edge(int32_t& slot, int32_t from, int32_t token, int32_t to) {
    edges_[num_edges_++] = {from, token, to, states_[from].edge};
    slot = states_[from].edge = int32_t(num_edges_);
    states_[from].edge--;
  }

  // Returns the state whose longest run is that of `state` followed by `token`.
  int32_t split(int32_t state, int32_t token) {
    const int32_t after = edges_[find(state, token) - 1].to;
    const int32_t length = states_[state].length + 1;
    if (states_[after].length == length) return after;
    const int32_t clone = add_state({states_[after].link, length, states_[after].end, kNone});
    for (int32_t edge = states_[after].edge; edge >= 0; edge = edges_[edge].next)
      add_edge(find(clone, edges_[edge].token), clone, edges_[edge].token, edges_[edge].to);
    for (; state >= 0; state = states_[state].link) {
      const int32_t slot = find(state, token);
      if (slot == 0 || edges_[slot - 1].to != after) break;
      edges_[slot - 1].to = clone;
    }
    return states_[after].link = clone;
  }

  // Updates the newest place in a few states along the links, from `state` on.
  void refresh(int32_t state) {
    for (int i = 0; i < kRefreshed && state > kRoot; i++) {
      states_[state].end = int32_t(num_tokens_);
      state = states_[state].link;
    }
  }

  uint64_t seed_;
  size_t most_, num_slots_;
  Array<int32_t> text_;
  Array<State> states_;
  Array<Edge> edges_;
  Array<int32_t> slots_;
  size_t num_tokens_ = 0, num_states_ = 0, num_edges_ = 0;
  int32_t last_ = kRoot;
};

}  // namespace

// Returns an automaton for texts of together `most` tokens with their ends; null without memory.
SHARPI_API void* sharpi_suffix_create(int64_t most, uint64_t seed) {
  try {
    return new SuffixAutomaton(size_t(most), seed);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

SHARPI_API void sharpi_suffix_destroy(void* automaton) {
  delete static_cast<SuffixAutomaton*>(automaton);
}

SHARPI_API void sharpi_suffix_clear(void* automaton) {
  static_cast<SuffixAutomaton*>(automaton)->clear();
}

// Appends a text and its end; returns 0 if there is no room for them, else 1.
SHARPI_API int sharpi_suffix_add(void* automaton, const int32_t* tokens, int64_t count) {
  auto& own = *static_cast<SuffixAutomaton*>(automaton);
  if (!own.has_room(size_t(count) + 1)) return 0;
  for (int64_t i = 0; i < count; i++) own.append(tokens[i]);
  own.append(kEndOfText);
  return 1;
}

// Follows the tokens from `place`, a state and the length of its run, and updates `place`.
SHARPI_API void sharpi_suffix_follow(void* automaton, int32_t* place, const int32_t* tokens,
                                     int64_t count) {
  Place at{place[0], place[1]};
  for (int64_t i = 0; i < count; i++)
    static_cast<SuffixAutomaton*>(automaton)->follow(at, tokens[i]);
  place[0] = at.state;
  place[1] = at.length;
}

// Writes what followed at the place before, at most `most` tokens of one text; returns the number.
SHARPI_API int32_t sharpi_suffix_following(const void* automaton, int32_t state, int32_t most,
                                           int32_t* tokens) {
  return static_cast<const SuffixAutomaton*>(automaton)->following(state, most, tokens);
}
