"""ReasoningBudget closes a model's reasoning after a number of tokens."""

from typing import Literal

from sharpi.constraints.constraint import TokenMask, mask_of
from sharpi.constraints.marker import MarkerMatcher
from sharpi.tokenizer.reasoning import ReasoningMarkers
from sharpi.tokenizer.tokenizer import Tokenizer


class ReasoningBudget:
    """Allows all tokens until the reasoning has `budget` tokens, then forces its closing marker.

    Only reasoning at the beginning of an answer is counted. `starts_inside`: the prompt ends within
    the reasoning.
    """

    def __init__(
        self, tokenizer: Tokenizer, markers: ReasoningMarkers, budget: int, starts_inside: bool
    ) -> None:
        self._tokenizer = tokenizer
        self._opening = markers.opening.encode()
        self._closing = MarkerMatcher(tokenizer, markers.closing)
        self._stage: Literal["before", "inside", "after"] = "inside" if starts_inside else "before"
        self._left = budget
        self._start = b""
        self._forced: list[int] = []

    def allowed(self) -> TokenMask | None:
        """Returns the mask of the closing marker's next token if the budget is spent, else None."""
        if self._stage != "inside" or self._left > 0:
            return None
        if not self._forced:
            self._forced = list(self._closing.ids)
        return mask_of(self._forced[:1], self._tokenizer.vocab_size)

    def accept(self, token: int) -> None:
        """Advances the state by one token, and counts it if it is part of the reasoning."""
        if self._stage == "before":
            self._begin(self._tokenizer.token_bytes(token))
        elif self._stage == "inside":
            self._left -= 1
            self._forced = self._forced[1:]
            if self._closing.feed(token):
                self._stage = "after"

    def _begin(self, data: bytes) -> None:
        """Reads bytes at the beginning of the output, to find out whether they open reasoning."""
        self._start = (self._start + data).lstrip()
        if self._start.startswith(self._opening):
            self._stage = "inside"
        elif not self._opening.startswith(self._start):
            self._stage = "after"
