"""SeenText: recent texts of all sequences, and SuffixDrafter, which drafts by looking them up."""

from array import array
from collections.abc import Sequence

from sharpi.settings import DraftKind
from sharpi.speculation.draft import Draft, levels_of_match
from sharpi.speculation.suffix_automaton import Place, SuffixAutomaton

MAX_TOKENS = 40_000  # tokens of one automaton, which need about 4.5 MB
MAX_TEXT = 8_192  # the newest tokens of one text that are kept
_LEAST_MATCHED = 2
_MOST_FOLLOWED = 256  # tokens followed at once; of a prompt, only the newest ones
_TAIL = 64  # newest tokens to follow again after the text has changed


class SeenText:
    """Recent texts in two suffix automata; when the newer one is full, the older one is cleared.

    Both together need about 9 MB, which is reused. Only the engine's thread may use it. `version`
    changes with every added text, so that drafters notice it.
    """

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
    """Drafts the tokens that followed in recent texts after the end of this sequence.

    It looks up the longest run of tokens with which the sequence ends and that occurs in them.
    """

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
