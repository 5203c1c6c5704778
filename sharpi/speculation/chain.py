"""DrafterChain: the drafters of one sequence, and the choice of the most promising draft."""

from collections.abc import Sequence

from sharpi.speculation.acceptance import Acceptance
from sharpi.speculation.draft import Draft, Drafter

_WORTH_ASKING = 0.5  # a model drafts, too, if the first token of free drafts is less likely


class DrafterChain:
    """Runs the drafters that cost little, and a model only if they have no promising draft."""

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self._free = [drafter for drafter in drafters if drafter.is_free]
        self._models = [drafter for drafter in drafters if not drafter.is_free]

    def extend(self, tokens: Sequence[int]) -> None:
        """Passes the next tokens of the sequence to all drafters."""
        for drafter in (*self._free, *self._models):
            drafter.extend(tokens)

    @property
    def has_models(self) -> bool:
        """True if at least one drafter is a model, which takes time."""
        return bool(self._models)

    def close(self) -> None:
        """Closes all drafters at the end of the sequence."""
        for drafter in (*self._free, *self._models):
            drafter.close()

    def propose(self, most: int, acceptance: Acceptance, most_of_models: int) -> list[Draft]:
        """Returns the drafts of all drafters that cost little, the most promising first.

        A draft has at most `most` tokens. If the first token of the first draft is unlikely to be
        accepted, a model drafts as well, at most `most_of_models` tokens, and its draft is the
        first.
        """
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
