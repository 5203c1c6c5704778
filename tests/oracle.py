"""An oracle: a drafter that knows the next tokens, and is sometimes wrong."""

import random
from collections.abc import Sequence

from sharpi.engine.engine import Engine
from sharpi.settings import DraftKind
from sharpi.speculation.draft import Draft


class Oracle:
    """Drafts the tokens that will come, except for some of them."""

    kind: DraftKind = "draft"
    is_free = False

    def __init__(self, texts: Sequence[list[int]], share_right: float) -> None:
        self._texts, self._share = texts, share_right
        self._random = random.Random(3)
        self._tokens: list[int] = []

    def extend(self, tokens: Sequence[int]) -> None:
        self._tokens += tokens

    def propose(self, most: int) -> Draft | None:
        known = len(self._tokens)
        for text in self._texts:
            if text[:known] == self._tokens:
                wrong = [self._random.random() > self._share for _ in range(most)]
                drafted = text[known : known + most]
                tokens = tuple(t + w for t, w in zip(drafted, wrong, strict=False))
                return Draft(self.kind, tokens, (9,) * len(tokens)) if tokens else None
        return None

    def close(self) -> None:
        """Does nothing."""


def with_oracle(engine: Engine, *texts: list[int], share_right: float = 0.7) -> Engine:
    """Lets an oracle draft that knows these texts with their prompts."""
    engine.speculator._model_drafters = lambda: [Oracle(texts, share_right)]
    return engine
