"""Acceptance: how often the model accepts drafts of each kind and level, learned while decoding."""

from collections.abc import Iterable, Sequence

from sharpi.config import DraftKind
from sharpi.speculation.draft import NUM_CHANCES, Draft

_PRIOR_WEIGHT = 4.0  # observations that count as much as what was learned in other sequences
# The weight of an observation falls by this factor with every newer one of its level.
_FORGETTING = 0.98
_FIRST_CHANCE = 0.5
_SURE: frozenset[DraftKind] = frozenset(("mtp", "draft"))  # kinds whose levels are probabilities
_MOST = 0.99  # the highest chance, since nothing is certain
WORTH_A_ROW = 0.05


class _Level:
    """Counts of one kind and level: `right` of `seen` tokens were accepted; old ones weigh less."""

    __slots__ = ("right", "seen")

    def __init__(self) -> None:
        self.right = self.seen = 0.0

    def add(self, *, is_right: bool) -> None:
        self.right = self.right * _FORGETTING + is_right
        self.seen = self.seen * _FORGETTING + 1


class Acceptance:
    """The chances of drafted tokens in one sequence; `others` has those of all sequences."""

    def __init__(self, others: "Acceptance | None" = None) -> None:
        self._others = others
        self._levels: dict[tuple[DraftKind, int], _Level] = {}

    def chance(self, kind: DraftKind, level: int) -> float:
        """Returns the chance that a token is right, if all tokens before it in the draft are."""
        prior = (
            _first_chance(kind, level) if self._others is None else self._others.chance(kind, level)
        )
        own = self._levels.get((kind, level))
        if own is None:
            return min(prior, _MOST)
        right = own.right + _PRIOR_WEIGHT * prior
        return min(right / (own.seen + _PRIOR_WEIGHT), _MOST)

    def chances(self, draft: Draft, least: float = WORTH_A_ROW) -> list[float]:
        """Returns for each token the chance that it and all before it are right.

        The list ends before the first chance below `least`.
        """
        reached, chances = 1.0, []
        known: dict[int, float] = {}
        for level in draft.certainty:
            if level not in known:
                known[level] = self.chance(draft.kind, level)
            reached *= known[level]
            if reached < least:
                break
            chances.append(reached)
        return chances

    def learn(self, draft: Draft, tokens: Sequence[int]) -> None:
        """Learns from the sequence's next `tokens`, up to the first that differs from the draft."""
        for level, is_right in _judged(draft, tokens):
            self._learn(draft.kind, level, is_right=is_right)

    def _learn(self, kind: DraftKind, level: int, *, is_right: bool) -> None:
        self._levels.setdefault((kind, level), _Level()).add(is_right=is_right)
        if self._others is not None:
            self._others._learn(kind, level, is_right=is_right)


def _first_chance(kind: DraftKind, level: int) -> float:
    """Returns the chance before anything was learned: the model's own, if a model drafts."""
    return (level + 0.5) / NUM_CHANCES if kind in _SURE else _FIRST_CHANCE


def _judged(draft: Draft, tokens: Sequence[int]) -> Iterable[tuple[int, bool]]:
    for drafted, level, token in zip(draft.tokens, draft.certainty, tokens, strict=False):
        yield level, drafted == token
        if drafted != token:
            return
