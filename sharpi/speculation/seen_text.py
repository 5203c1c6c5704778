"""SeenText: the text that this process has seen lately, and SuffixDrafter, which drafts from it."""

from collections.abc import Sequence

from sharpi.config import DraftKind
from sharpi.speculation.draft import Draft, levels_of_match
from sharpi.speculation.suffix_automaton import ROOT, SuffixAutomaton

MAX_TOKENS = 40_000  # of a half, about 30 MB
MAX_TEXT = 8_192  # the newest tokens of one text that are kept
_END_OF_TEXT = -1
_LEAST_MATCHED = 2


class SeenText:
    """Two suffix automata: once the newer one has MAX_TOKENS tokens, the older one is forgotten.

    For the engine's thread only. `version` changes with every added text, so that drafters
    notice it.
    """

    def __init__(self, max_tokens: int = MAX_TOKENS) -> None:
        self._max_tokens = max_tokens
        self.halves = [SuffixAutomaton(), SuffixAutomaton()]
        self.version = 0

    def add(self, tokens: Sequence[int]) -> None:
        """Adds a text; keeps only its newest MAX_TEXT tokens."""
        newest = tokens[-min(MAX_TEXT, self._max_tokens) :]
        if len(self.halves[0].text) + len(newest) > self._max_tokens:
            self.halves = [SuffixAutomaton(), self.halves[0]]
        for token in newest:
            self.halves[0].append(token)
        self.halves[0].append(_END_OF_TEXT)
        self.version += 1

    @property
    def num_tokens(self) -> int:
        """Tokens that are kept now."""
        return sum(len(half.text) for half in self.halves)


class SuffixDrafter:
    """Drafts what followed the longest run of tokens, in seen text, with which a sequence ends."""

    kind: DraftKind = "suffix"
    is_free = True

    def __init__(self, seen: SeenText) -> None:
        self._seen = seen
        self._tail: list[int] = []  # to follow again in a text that has changed
        self._begin()

    def _begin(self) -> None:
        self._version = self._seen.version
        self._halves = self._seen.halves
        self._places = [(ROOT, 0)] * len(self._halves)

    def extend(self, tokens: Sequence[int]) -> None:
        self._tail = [*self._tail, *tokens][-64:] if len(tokens) < 64 else list(tokens[-64:])
        if self._version != self._seen.version:
            self._begin()
            self._follow(self._tail)
        else:
            self._follow(tokens[-256:])

    def _follow(self, tokens: Sequence[int]) -> None:
        for i, half in enumerate(self._halves):
            if half.text:
                state, length = self._places[i]
                for token in tokens:
                    state, length = half.follow(state, length, token)
                self._places[i] = state, length

    def close(self) -> None:
        """Does nothing: it owns nothing that has to be freed."""

    def propose(self, most: int) -> Draft | None:
        which = max(range(len(self._places)), key=lambda i: self._places[i][1])
        state, length = self._places[which]
        if length < _LEAST_MATCHED:
            return None
        half = self._halves[which]
        end = half.end[state]
        tokens = half.text[end : end + most]
        if _END_OF_TEXT in tokens:
            tokens = tokens[: tokens.index(_END_OF_TEXT)]
        if not tokens:
            return None
        return Draft(self.kind, tuple(tokens), levels_of_match(length, len(tokens)))
