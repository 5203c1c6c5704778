"""AfterReasoning leaves a model's reasoning free and constrains the answer after it."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from sharpi.constraints.constraint import Constraint, TokenMask
from sharpi.constraints.marker import MarkerWatch
from sharpi.constraints.mask import all_but, allows, mask_of
from sharpi.tokenizer.reasoning import ReasoningMarkers
from sharpi.tokenizer.tokenizer import Tokenizer


class AfterReasoning:
    """Applies `constraint` to the tokens after the reasoning, or to all tokens without reasoning.

    `starts_inside`: the prompt ends within the reasoning. Within reasoning, end tokens are
    forbidden.
    """

    def __init__(
        self,
        constraint: Constraint,
        tokenizer: Tokenizer,
        markers: ReasoningMarkers,
        starts_inside: bool,
    ) -> None:
        self._constraint = constraint
        self._num_tokens = tokenizer.vocab_size
        self._closing = MarkerWatch(tokenizer, markers.closing)
        self._endless = all_but(tokenizer.end_ids, self._num_tokens)
        self._stage: Literal["before", "opening", "inside", "after"] = "before"
        self._opening: Sequence[int] = MarkerWatch(tokenizer, markers.opening).ids
        if starts_inside:
            self._stage = "inside"

    def allowed(self) -> TokenMask | None:
        """Returns the mask of the tokens that may come next; None allows all.

        Before the first token, the mask allows the first token of the opening marker and the tokens
        that the constraint allows. Within reasoning, the mask forbids end tokens and tokens with
        text after the closing marker. After the reasoning, the constraint's mask is returned.
        """
        if self._stage == "after":
            return self._constraint.allowed()
        if self._stage == "inside":
            return self._endless & self._closing.exact()
        marker = mask_of(self._opening[:1], self._num_tokens)
        mask = self._constraint.allowed() if self._stage == "before" else marker
        return None if mask is None else np.bitwise_or(mask, marker)

    def accept(self, token: int) -> None:
        """Advances the state by one token of the reasoning or of the answer."""
        if self._stage == "inside":
            self._stage = "after" if self._closing.feed(token) else "inside"
        elif self._stage == "opening" or (self._stage == "before" and self._opens(token)):
            self._opening = self._opening[1:]
            self._stage = "opening" if self._opening else "inside"
        else:
            self._stage = "after"
            self._constraint.accept(token)

    def _opens(self, token: int) -> bool:
        """Returns whether a token begins the opening marker of the reasoning.

        A token that the constraint's mask allows belongs to the answer instead.
        """
        mask = self._constraint.allowed()
        is_answer = mask is not None and allows(mask, token)
        return token == self._opening[0] and not is_answer
