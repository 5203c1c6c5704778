"""Drafts by looking up text: in the sequence itself (ngram), or in recent texts (suffix)."""

import os
from array import array
from collections.abc import Sequence
from ctypes import CDLL, c_int, c_int32, c_int64, c_uint64, c_void_p
from functools import cache

import numpy as np

from sharpi.native import declare, open_library
from sharpi.settings import DraftKind
from sharpi.speculation.draft import Draft, levels_of_match


class SuffixAutomaton:
    """A suffix automaton for `most` tokens of texts with their ends, allocated once."""

    def __init__(self, most: int) -> None:
        self.num_tokens = 0  # including the ends of texts
        self._library = _library()
        seed = int.from_bytes(os.urandom(8), "little")
        self._handle = self._library.sharpi_suffix_create(most, seed)
        if not self._handle:
            raise MemoryError(f"no memory for the runs of {most} tokens")

    def __del__(self) -> None:
        if handle := getattr(self, "_handle", None):
            self._library.sharpi_suffix_destroy(handle)

    def clear(self) -> None:
        """Removes all texts; existing `Place` objects become invalid."""
        self._library.sharpi_suffix_clear(self._handle)
        self.num_tokens = 0

    def add(self, tokens: Sequence[int]) -> None:
        """Adds a text; raises ValueError if it does not fit."""
        own = array("i", tokens)
        if not self._library.sharpi_suffix_add(self._handle, own.buffer_info()[0], len(own)):
            raise ValueError(f"no room for a text of {len(own)} tokens")
        self.num_tokens += len(own) + 1


class Place:
    """The longest run of tokens at the end of a sequence that occurs in an automaton's texts."""

    def __init__(self, automaton: SuffixAutomaton) -> None:
        self.automaton = automaton
        self._library, self._handle = automaton._library, automaton._handle
        self._at = array("i", (0, 0))

    @property
    def length(self) -> int:
        """The number of tokens of the run; 0 if nothing matches."""
        return self._at[1]

    def follow(self, tokens: "array[int]") -> None:
        """Updates the run by the next tokens of the sequence."""
        if self.automaton.num_tokens:
            place, own = self._at.buffer_info()[0], tokens.buffer_info()
            self._library.sharpi_suffix_follow(self._handle, place, *own)

    def following(self, most: int) -> tuple[int, ...]:
        """Returns at most `most` tokens that follow a recent occurrence of the run, in its text."""
        room = array("i", bytes(4 * most))
        count = self._library.sharpi_suffix_following(
            self._handle, self._at[0], len(room), room.buffer_info()[0]
        )
        return tuple(room[:count])


@cache
def _library() -> CDLL:
    signatures = {
        "sharpi_suffix_create": (c_void_p, [c_int64, c_uint64]),
        "sharpi_suffix_destroy": (None, [c_void_p]),
        "sharpi_suffix_clear": (None, [c_void_p]),
        "sharpi_suffix_add": (c_int, [c_void_p, c_void_p, c_int64]),
        "sharpi_suffix_follow": (None, [c_void_p, c_void_p, c_void_p, c_int64]),
        "sharpi_suffix_following": (c_int32, [c_void_p, c_int32, c_int32, c_void_p]),
    }
    return declare(open_library(), signatures)


MAX_TOKENS = 40_000  # tokens of one automaton, which need about 4.5 MB
MAX_TEXT = 8_192  # the newest tokens of one text that are kept
_LEAST_MATCHED = 2
_MOST_FOLLOWED = 256  # tokens followed at once; of a prompt, only the newest ones
_TAIL = 64  # newest tokens to follow again after the text has changed


class SeenText:
    """Recent texts in two automata of 9 MB, cleared in turn; `version` changes with each text."""

    def __init__(self, max_tokens: int = MAX_TOKENS) -> None:
        self._max_tokens = max_tokens
        self.halves: tuple[SuffixAutomaton, ...] = ()  # the newer one comes first
        self.version = 0

    def add(self, tokens: Sequence[int]) -> None:
        """Adds a text; keeps only its newest MAX_TEXT tokens."""
        newest = tokens[-min(MAX_TEXT, self._max_tokens) :]
        if not self.halves:
            self.halves = (self._half(), self._half())
        newer, older = self.halves
        if newer.num_tokens + len(newest) > self._max_tokens:
            older.clear()
            self.halves = (older, newer)
        self.halves[0].add(newest)
        self.version += 1

    def _half(self) -> SuffixAutomaton:
        return SuffixAutomaton(self._max_tokens + 1)  # one more, for the end of the last text

    @property
    def num_tokens(self) -> int:
        """The number of tokens in both automata."""
        return sum(half.num_tokens for half in self.halves)


class SuffixDrafter:
    """Drafts what followed in recent texts after the longest run that ends this sequence."""

    kind: DraftKind = "suffix"
    is_free = True

    def __init__(self, seen: SeenText) -> None:
        self._seen = seen
        self._tail = array("i")
        self._begin()

    def _begin(self) -> None:
        self._version = self._seen.version
        self._places = [Place(half) for half in self._seen.halves]

    def extend(self, tokens: Sequence[int]) -> None:
        newest = array("i", tokens[-_MOST_FOLLOWED:])
        self._tail = (self._tail + newest)[-_TAIL:]
        if not self._has_begun_again():
            self._follow(newest)

    def _has_begun_again(self) -> bool:
        """Looks up the newest tokens again if a text was added since; returns True if it did."""
        if self._version == self._seen.version:
            return False
        self._begin()
        self._follow(self._tail)
        return True

    def _follow(self, tokens: "array[int]") -> None:
        for place in self._places:
            place.follow(tokens)

    def close(self) -> None:
        """Does nothing: there is nothing to free."""

    def propose(self, most: int) -> Draft | None:
        self._has_begun_again()
        place = max(self._places, key=lambda each: each.length, default=None)
        if place is None or place.length < _LEAST_MATCHED:
            return None
        tokens = place.following(most)
        if not tokens:
            return None
        return Draft(self.kind, tokens, levels_of_match(place.length, len(tokens)))


_NUM_MATCHED = 3  # tokens that have to match; their ids together form a key
_TOKEN_BITS = 21
_KEY_MASK = (1 << _NUM_MATCHED * _TOKEN_BITS) - 1
_NUM_AT_ONCE = 64
_MOST_MATCHED = 64  # the most tokens that are compared, so that a long match beats a short one


class NgramDrafter:
    """Drafts the tokens after the last earlier occurrence of the three newest tokens."""

    kind: DraftKind = "ngram"
    is_free = True

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._ends: dict[int, int] = {}  # for each key, the end of its latest occurrence
        self._newest = 0  # the key of the newest tokens
        # The end of this key's previous occurrence.
        self._before: int | None = None

    def extend(self, tokens: Sequence[int]) -> None:
        if len(tokens) > _NUM_AT_ONCE:
            self._extend_at_once(tokens)
            return
        all_tokens, ends = self._tokens, self._ends
        for token in tokens:
            all_tokens.append(token)
            self._newest = key = (self._newest << _TOKEN_BITS | token) & _KEY_MASK
            end = len(all_tokens)
            self._before = ends.get(key)
            ends[key] = end

    def _extend_at_once(self, tokens: Sequence[int]) -> None:
        """Does the same as `extend`, but five times as fast for many tokens."""
        first = len(self._tokens)
        self._tokens += tokens
        known = self._tokens[max(0, first - _NUM_MATCHED + 1) :]
        ids = np.array([*[0] * (_NUM_MATCHED - 1), *known], np.int64)
        keys = ids[2:] | ids[1:-1] << _TOKEN_BITS | ids[:-2] << 2 * _TOKEN_BITS
        own = keys[len(known) - len(tokens) :].tolist()
        ends = range(first + 1, len(self._tokens) + 1)
        self._newest = own.pop()
        self._ends.update(zip(own, ends, strict=False))
        self._before = self._ends.get(self._newest)
        self._ends[self._newest] = ends[-1]

    def propose(self, most: int) -> Draft | None:
        end = self._before
        if end is None:
            return None
        tokens = self._continuation(end, most)
        return Draft(self.kind, tokens, levels_of_match(self._matched(end), len(tokens)))

    def close(self) -> None:
        """Does nothing: there is nothing to free."""

    def _continuation(self, end: int, most: int) -> tuple[int, ...]:
        """Returns the `most` tokens from position `end` on; if there are fewer, repeats them."""
        tokens = self._tokens[end : end + most]
        while len(tokens) < most:
            tokens += tokens[: most - len(tokens)]
        return tuple(tokens)

    def _matched(self, end: int) -> int:
        """Returns how many tokens before position `end` equal the newest tokens, at most 64."""
        tokens, count, most = self._tokens, min(end, _NUM_MATCHED), min(end, _MOST_MATCHED)
        while count < most and tokens[end - 1 - count] == tokens[~count]:
            count += 1
        return count
