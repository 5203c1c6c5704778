"""Chain: several drafters of one sequence, of which the most promising one drafts."""

from collections.abc import Sequence

from sharpi.speculation.acceptance import Acceptance
from sharpi.speculation.draft import Draft, Drafter

_WORTH_ASKING = 0.5  # if a free draft's first token is less likely than this, a model is asked, too


class Chain:
    """Uses the free drafters, and a model only if they have no promising draft."""

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self._free = [drafter for drafter in drafters if drafter.is_free]
        self._models = [drafter for drafter in drafters if not drafter.is_free]

    def extend(self, tokens: Sequence[int]) -> None:
        """Adds tokens that follow in the sequence."""
        for drafter in (*self._free, *self._models):
            drafter.extend(tokens)

    @property
    def has_models(self) -> bool:
        """True if some drafter is a model, and so takes time."""
        return bool(self._models)

    def close(self) -> None:
        """Ends the drafts for this sequence."""
        for drafter in (*self._free, *self._models):
            drafter.close()

    def propose(self, most: int, acceptance: Acceptance, most_of_models: int) -> list[Draft]:
        """Drafts at most `most` tokens by each free drafter, the most promising draft first.

        If the first token of that draft is unlikely to be right, a model drafts as well, at most
        `most_of_models` tokens, and its draft comes first.
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
