"""SequenceDrafts: the drafts of one sequence, and the chance that their tokens are accepted."""

from collections.abc import Iterable, Sequence

from sharpi.settings import DraftKind
from sharpi.speculation.draft import NUM_CHANCES, Draft, Drafter
from sharpi.speculation.statistics import DraftStatistics

_PRIOR_WEIGHT = 4.0  # the chance from other sequences counts like this many observations
# The weight of an observation falls by this factor with every newer one of its level.
_FORGETTING = 0.98
_FIRST_CHANCE = 0.5
_SURE: frozenset[DraftKind] = frozenset(("mtp", "draft"))  # kinds whose levels are probabilities
_MOST = 0.99  # the highest chance, since nothing is certain
WORTH_A_ROW = 0.05  # the least chance with which a drafted token is worth a row of a check


class _Level:
    """Counts for one kind and level: `right` of `seen` tokens were accepted."""

    __slots__ = ("right", "seen")

    def __init__(self) -> None:
        self.right = self.seen = 0.0

    def add(self, *, is_right: bool) -> None:
        self.right = self.right * _FORGETTING + is_right
        self.seen = self.seen * _FORGETTING + 1


class Acceptance:
    """The chances of drafted tokens in a sequence; `others`, over all, is the prior and learns."""

    def __init__(self, others: "Acceptance | None" = None) -> None:
        self._others = others
        self._levels: dict[tuple[DraftKind, int], _Level] = {}

    def chance(self, kind: DraftKind, level: int) -> float:
        """Returns the chance that a token is accepted, given that all tokens before it are."""
        prior = (
            _first_chance(kind, level) if self._others is None else self._others.chance(kind, level)
        )
        own = self._levels.get((kind, level))
        if own is None:
            return min(prior, _MOST)
        right = own.right + _PRIOR_WEIGHT * prior
        return min(right / (own.seen + _PRIOR_WEIGHT), _MOST)

    def chances(self, draft: Draft, least: float = WORTH_A_ROW) -> list[float]:
        """Returns the chance of each token with all before it, up to the first below `least`."""
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
        """Compares a draft with the next tokens, up to and including the first difference."""
        for level, is_right in _judged(draft, tokens):
            self._learn(draft.kind, level, is_right=is_right)

    def _learn(self, kind: DraftKind, level: int, *, is_right: bool) -> None:
        self._levels.setdefault((kind, level), _Level()).add(is_right=is_right)
        if self._others is not None:
            self._others._learn(kind, level, is_right=is_right)


def _first_chance(kind: DraftKind, level: int) -> float:
    """Returns the chance to assume before any observation."""
    return (level + 0.5) / NUM_CHANCES if kind in _SURE else _FIRST_CHANCE


def _judged(draft: Draft, tokens: Sequence[int]) -> Iterable[tuple[int, bool]]:
    for drafted, level, token in zip(draft.tokens, draft.certainty, tokens, strict=False):
        yield level, drafted == token
        if drafted != token:
            return


_WORTH_ASKING = 0.5  # a model drafts, too, if the first token of free drafts is less likely


class SequenceDrafts:
    """The drafters of one sequence; models only draft where free drafts are not promising."""

    def __init__(self, drafters: Sequence[Drafter], overall: Acceptance) -> None:
        self._free = [drafter for drafter in drafters if drafter.is_free]
        self._models = [drafter for drafter in drafters if not drafter.is_free]
        self.has_models = bool(self._models)
        self._new: list[int] = []  # tokens that the drafters have not received yet
        self.num_known = 0  # tokens of the answer so far
        self.acceptance = Acceptance(overall)
        self.drafts: list[Draft] = []
        self.statistics = DraftStatistics()

    @property
    def best(self) -> Draft | None:
        """The most promising draft for the current step, if there is one."""
        return self.drafts[0] if self.drafts else None

    def extend(self, tokens: Sequence[int]) -> None:
        """Adds the next tokens of the sequence."""
        self._new += tokens

    def close(self) -> None:
        """Closes the drafters at the end of the sequence."""
        for drafter in (*self._free, *self._models):
            drafter.close()

    def propose(self, most: int, most_of_models: int, least: float) -> list[float]:
        """Drafts for the next step; returns the best one's chances, up to one below `least`."""
        self.drafts = []
        if most > 0:
            for drafter in (*self._free, *self._models):
                drafter.extend(self._new)
            self._new = []
            self.drafts = self._propose(most, most_of_models)
        return self.acceptance.chances(self.best, least) if self.best else []

    def _propose(self, most: int, most_of_models: int) -> list[Draft]:
        """Returns the drafts of all drafters that cost little, the most promising first."""
        acceptance = self.acceptance
        drafts = [draft for each in self._free if (draft := each.propose(most)) is not None]
        if len(drafts) > 1:
            drafts.sort(key=lambda draft: -sum(acceptance.chances(draft)))
        promising = drafts and acceptance.chance(drafts[0].kind, drafts[0].certainty[0])
        if most_of_models and self._models and (promising or 0.0) < _WORTH_ASKING:
            for model in self._models:
                draft = model.propose(min(most, most_of_models))
                if draft is not None:
                    return [draft, *drafts]
        return drafts

    def learn(self, tokens: Sequence[int]) -> None:
        """Adds the tokens that the step yielded, and learns which drafted tokens were accepted."""
        for draft in self.drafts:
            self.acceptance.learn(draft, tokens)
        self.extend(tokens)
        self.num_known += len(tokens)
